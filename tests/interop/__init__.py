"""Comparisons with a real Apache Kafka broker: our engine opens the broker's files, and the broker opens ours."""
