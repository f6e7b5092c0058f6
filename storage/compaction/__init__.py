"""Compaction: keeps the newest record of each key, and removes older ones (kafka-storage.md#compaction).

`selection` decides which log is due, `cleaner` does a pass over it, by an `offset_map` of keys, and replaces the
files. After Kafka's LogCleaner, Cleaner, LogCleanerManager and SkimpyOffsetMap.
"""
