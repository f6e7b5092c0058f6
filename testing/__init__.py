"""Common parts of tests and benchmarks: a real Kafka broker with its clients, and processes that end with the tests."""
