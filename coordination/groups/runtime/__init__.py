"""The group coordinator of an engine: run over the partitions of `__consumer_offsets`, with members in this process.

`service` is `coordination.membership.Groups`: it runs everything in one thread. `shard` keeps one partition of the topic,
`loader` reads it, and `assignment` has what leaders and members tell each other. `member` is a member of this process,
over the coordinator in `embedded_member` or that of a cluster.
"""
