"""Duties: the periodic work of the owner of data directories.

`schedule` says which duty is due when. `cleaning` compacts, `staged_writes` appends what other processes submitted, and
`planning` lists what retention and compaction would do.
"""
