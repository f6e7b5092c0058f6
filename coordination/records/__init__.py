"""The records of Kafka's group and transaction coordinators: committed positions, groups, transactions, share groups.

`…_records` has the records of each kind, `consumer_protocol` what members of a group send each other, `assignors`
which member gets which partition.
"""
