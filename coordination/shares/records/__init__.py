"""The state machine of one partition of a queue (kafka-coordinators.md#share-groups): see `share_partition`.

`acquisition` hands records out, `acknowledgement` ends leases.
"""
