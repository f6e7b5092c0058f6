"""The log engine: topics and partitions in a directory byte-compatible with a Kafka broker's log.dirs.

`engine` is the protocol through which the other packages reach topics. The folders, from the lowest to the
highest: `codec` (bytes in, values out), `disk` (every file name, every system call), `indexes`, `checkpoints`, `producers`,
`segment`, `log` (append, read), `recovery`, `retention`, `compaction`, `staging`, `idempotence`, `directories`, `duties`, `topics`, and
`manager` (the engine as a whole). docs/folders.md has a line on each.
"""
