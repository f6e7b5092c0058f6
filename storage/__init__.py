"""The log engine: topics and partitions in a directory byte-compatible with a Kafka broker's log.dirs.

Folders, from what knows least to what knows most: `codec` (bytes in, values out), `disk` (every name, every
system call), `indexes`, `checkpoints`, `log` (segments, append, read), `recovery`, `retention`, `manager`
(many topics in one directory). `engine` is the protocol through which everybody else reaches them.
"""
