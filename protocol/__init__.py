"""Kafka's protocol: the fields of each request and answer by version, for clients and for the listener."""
