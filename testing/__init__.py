"""What tests and benchmarks share: a real Kafka broker with its clients, and programs that end with the one that started them."""
