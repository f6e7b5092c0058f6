"""The group coordinator: which member reads which partition, and the positions of groups, as a broker keeps both.

`coordinator` is the classic protocol as a state machine without a thread, a disk or a clock of its own: `group` one
group and its votes, `rebalancing` its phases, `joining` how members come, `offsets` the positions. `shard` keeps one
partition of `__consumer_offsets`, and `service` runs all of them in one thread; `member` is a member of this process.
Rules: kafka-coordinators.md#groups.
"""
