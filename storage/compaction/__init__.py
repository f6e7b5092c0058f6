"""Compaction: keeps the newest record of each key, and removes older ones (kafka-storage.md#compaction).

`selection` decides which log is due; `cleaner` does a pass over it with an `offset_map` of keys, and replaces the
files. Modeled on Kafka's LogCleaner, Cleaner, LogCleanerManager and SkimpyOffsetMap.
"""
