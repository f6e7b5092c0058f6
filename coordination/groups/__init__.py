"""The group coordinator: `rebalance` joins members and ends their sessions, `offsets` keeps positions, as a broker does.

`coordinator` implements the classic protocol as a state machine that uses no thread, disk or clock. `group` is one
group with its members' votes, `joins` handles joining members. `runtime/` runs one coordinator per partition of
`__consumer_offsets`, all in one thread, and contains the members of this process. Rules: kafka-coordinators.md#groups.
"""
