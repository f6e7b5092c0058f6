"""The directories of the mount, and the names in each of them.

`root`, `topics`, `partitions`, `groups` and `queues` are the directories, each a table of names. The files behind the names stand in
`fusefs.files`, one module a kind.
"""
