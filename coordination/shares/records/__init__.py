"""The state machine of one partition of a queue: which records are held by a member, and which are done.

`states` is one record's state, or that of adjacent ones, `in_flight` a batch of them, one state for all or one for
each, `partition_state` the batches in order. `share_partition` is the machine, `acquisition` and `acknowledgement` its
two halves: what is handed out, and what becomes of it. It is given the time; what it returns to be written is written
before it is told to go on. The rules are Kafka's (kafka-coordinators.md#share-groups).
"""
