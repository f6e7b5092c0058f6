"""The log engine: topics and partitions in a directory byte-compatible with a Kafka broker's log.dirs.

Begin with `engine`, the protocol.
"""
