"""Against a real Apache Kafka broker, in both directions: what it wrote under us, what we wrote under it."""
