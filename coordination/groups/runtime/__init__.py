"""The groups of an engine in its own process: the coordinator over the partitions of `__consumer_offsets`, and its members.

`service` is `coordination.membership.Groups`: it runs everything in one thread. `shard` keeps one partition of the topic,
`loader` reads it, `member` is a member of this process, and `assignment` has what leaders and members tell each other.
"""
