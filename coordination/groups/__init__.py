"""The group coordinator: assigns partitions to members, and keeps the positions of groups, as a broker does.

`coordinator` is the classic protocol as a state machine without a thread, a disk or a clock of its own: `group` one
group and its votes, `joins` how members come, `rebalance` the phases that follow, `offsets` the positions. `runtime/`
runs one for each partition of `__consumer_offsets`, in one thread, and has the members of this process.
Rules: kafka-coordinators.md#groups.
"""
