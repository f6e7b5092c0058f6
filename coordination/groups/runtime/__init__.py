"""The group coordinator of an engine: runs the partitions of `__consumer_offsets`, and the members in this process.

`service` implements `coordination.membership.Groups` and runs all work in one thread. `shard` keeps one partition of
the topic, `loader` reads it, and `assignment` encodes the metadata of leaders and members. `member` is a member in
this process; it talks to the local coordinator through `embedded_member`, or to a coordinator in a cluster.
"""
