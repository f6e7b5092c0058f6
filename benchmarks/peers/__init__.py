"""Benchmarks beside what people would take otherwise: a broker with kcat and with Kafka's console tools."""
