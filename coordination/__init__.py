"""Coordination of readers, by the rules of Kafka's coordinators: groups with their positions, and queues.

`groups` is the group coordinator; `shares` hands out records one by one, like Kafka's share groups. Both keep their
state in internal topics of the log engine, as the records of `records`. The mount and the command use both through
the protocols `membership` and `share_groups`, which a Kafka cluster implements, too.
"""
