"""Duties: the periodic work of the owner of data directories.

`schedule` says when each is due, `log_cleaner` compacts, `staged_writes` appends submitted writes, `plan` previews.
"""
