"""Benchmarks of the alternatives: a broker with kcat and with Kafka's console tools."""
