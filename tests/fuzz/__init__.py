"""Any bytes as record batches: a target, seeds for it, a coverage-guided run (atheris) and a plain one."""
