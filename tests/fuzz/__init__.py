"""Fuzz tests: they read arbitrary bytes as requests and as record batches. Coverage may guide the bytes."""
