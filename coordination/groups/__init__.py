"""The group coordinator: assigns partitions to members, and keeps the positions of groups, as a broker does.

`coordinator` implements the classic protocol as a state machine that uses no thread, disk or clock. `group` is one
group with its members' votes, `joins` handles joining members, `rebalance` the phases of a rebalance, `offsets` the
positions. `runtime/` runs one coordinator per partition of `__consumer_offsets`, all in one thread, and contains the
members of this process. Rules: kafka-coordinators.md#groups.
"""
