"""The state machine of one partition of a queue: which records are held by a member, and which are done.

`share_partition` is the machine; `acquisition` hands records out, `acknowledgement` ends leases. `states` has the
state of one record, `in_flight` that of a batch, `partition_state` that of all. Rules:
kafka-coordinators.md#share-groups.
"""
