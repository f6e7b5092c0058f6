"""Duties: the periodic work of the owner of data directories.

`schedule` says which duty is due when. `log_cleaner` compacts, `staged_writes` appends what other processes submitted, and
`plan` lists what retention and compaction would do.
"""
