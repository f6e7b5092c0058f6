"""Fuzzing with bytes read as record batches (a coverage-guided run with atheris, and plain runs) or as requests."""
