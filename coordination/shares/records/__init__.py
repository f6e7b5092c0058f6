"""One partition of a queue: `acquisition` hands records out, `acknowledgement` ends or expires their leases.

`share_partition` combines both for callers. Rules: kafka-coordinators.md#share-groups.
"""
