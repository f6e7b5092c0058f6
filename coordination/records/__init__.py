"""The records that Kafka's group and transaction coordinators keep in topics: committed positions, groups, transactions.

`storage.wire` reads and writes Kafka's message schemas, `group_records` and `transaction_records` are the schemas of the two
internal topics, `consumer_protocol` what members of a group send each other, `assignors` who gets which partition.
`storage.partitioning` computes which partition of an internal topic holds a group. Each names its source; the
schemas are those of Kafka's message JSON.
"""
