"""Comparisons with a real Apache Kafka broker: our engine opens its files, and it opens ours."""
