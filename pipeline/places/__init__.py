"""Where topics are: data directories by their paths, or a Kafka cluster."""
