"""Fuzzing with record batches of any bytes: a target, its seeds, a coverage-guided run (atheris) and a plain one."""
