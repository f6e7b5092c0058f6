"""The state of share groups in `__share_group_state`, as a broker keeps it (kafka-coordinators.md#share-state-records)."""
