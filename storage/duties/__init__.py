"""Duties: the periodic work of the owner of data directories.

`schedule` decides when each duty is due, `log_cleaner` compacts, `staged_writes` appends submitted writes, and `plan`
shows what would be done.
"""
