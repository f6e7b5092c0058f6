"""The log engine: topics and partitions in a directory byte-compatible with a Kafka broker's log.dirs.

`engine` is the protocol through which everybody else reaches topics. The folders, from what knows least to what knows
most: `codec` (bytes in, values out), `disk` (every file name, every system call), `indexes`, `checkpoints`, `producers`,
`segment`, `log` (append, read), `recovery`, `retention`, `compaction`, `staging`, `directories`, `duties`, `topics`, and
`manager` (the engine as a whole); above them `inspect`, `handover` and `idempotence`. ARCHITECTURE.md has a line on each.
"""
