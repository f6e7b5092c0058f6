"""The group coordinator of an engine: run over the partitions of `__consumer_offsets`, with members in this process.

`service` implements `coordination.membership.Groups` and runs everything in one thread. `shard` keeps one partition
of the topic, `loader` reads it, and `assignment` encodes the metadata of leaders and members. `member` is a member of
this process, over the coordinator in `embedded_member` or that of a cluster.
"""
