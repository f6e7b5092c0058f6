"""The log engine: topics and partitions in a directory byte-compatible with a Kafka broker's log.dirs.

Other packages reach topics by the protocol in `engine`, which `manager` implements. docs/folders.md lists the
folders.
"""
