"""The state machine of one partition of a queue (kafka-coordinators.md#share-groups).

`acquisition` hands records out, `acknowledgement` ends leases, and `share_partition` combines them for callers.
"""
