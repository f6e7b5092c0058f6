"""The state of share groups in `__share_group_state`, as a broker's share coordinator keeps it.

`shard` is one partition of the topic, `store` loads and appends. Rules:
kafka-coordinators.md#share-state-records.
"""
