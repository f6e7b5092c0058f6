"""The group coordinator: assigns partitions to members, and keeps the positions of groups, as a broker does.

`coordinator` is the classic protocol as a state machine without thread, disk or clock. `group` is one group with its
votes, `joins` handles joining members, `rebalance` the phases of a rebalance, `offsets` the positions. `runtime/`
runs one coordinator per partition of `__consumer_offsets`, all in one thread, and has the members of this process.
Rules: kafka-coordinators.md#groups.
"""
