"""Queues, which Kafka calls share groups: records handed out one by one, with state stored as a broker stores it.

    session.take ─► group ─► queue.RecordReader (the log) ─► records.SharePartition: who holds what     (pure; its clock is given)
    session.acknowledge ─►                        records.SharePartition ─► state.StateStore: `__share_group_state`
    the first session begins, the last one ends ─► memberships: records of `__consumer_offsets`

`groups` implements the engine's `share_groups` (the protocol in `coordination.share_groups`). `group` is one group
with its sessions, `queue` one partition in a group. Rules: kafka-coordinators.md#share-groups.
"""
