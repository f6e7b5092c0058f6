"""Fuzzing with bytes read as record batches: a target, seeds, a coverage-guided run (atheris) and a plain run."""
