"""Fuzz tests: arbitrary bytes are read as requests, or as record batches (with or without guidance by coverage)."""
