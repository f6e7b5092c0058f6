"""Which partition a keyed record goes to, the same for everybody who writes: Kafka's hash of the key."""
