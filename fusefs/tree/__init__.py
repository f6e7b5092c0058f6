"""The directories of the mount, and the names in each of them.

`root`, `topics`, `partitions`, `groups` and `queues` are the directories, each with a table of names. The files
behind the names are in `fusefs.files`, one module for each kind.
"""
