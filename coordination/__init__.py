"""Coordination by the rules of Kafka's coordinators: consumer groups with their positions, queues, and transactions.

`groups` is the group coordinator. `shares` hands out records one by one, like Kafka's share groups. `transactions` ends
the transactions of Kafka's producers in all their partitions. The packages keep their state in internal topics of the
log engine, in the record formats of `records`. The mount and the command use groups and queues through the protocols
`membership` and `share_groups`, which `cluster` implements for a Kafka cluster.
"""
