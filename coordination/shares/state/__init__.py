"""The state of share groups in `__share_group_state`, kept as a broker's share coordinator keeps it.

`combiner` merges what changed into what was known, `shard` is one partition of the topic as a state machine without
I/O, `store` has the shards over the engine's topic: loading, appending, and deleting what snapshots made redundant.
Rules: kafka-coordinators.md#share-state-records.
"""
