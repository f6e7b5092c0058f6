"""Common parts of tests and benchmarks: a real Kafka broker with its clients, and processes that do not outlive them."""
