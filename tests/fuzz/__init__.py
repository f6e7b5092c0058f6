"""Fuzz tests: arbitrary bytes are read as record batches (guided by coverage with atheris, or plain) or as requests."""
