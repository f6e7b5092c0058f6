"""Places of topics: data directories by their paths, or a Kafka cluster."""
