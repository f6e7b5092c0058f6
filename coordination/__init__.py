"""Coordination of readers, as Kafka's coordinators do it: groups with their positions, and queues.

`groups` is the group coordinator, `shares` hands out records one by one, as Kafka's share groups do. Both keep what
they know in internal topics of the log engine, as the records of `records`. `membership` and `share_groups` are the
protocols through which the mount and the command use them; a Kafka cluster stands behind the same protocols.
"""
