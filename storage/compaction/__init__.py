"""Compaction: keeps the newest record of each key, and removes older ones.

`selection` decides which log is dirty enough and how far it may be cleaned, `offset_map` remembers each key's newest
offset by what `digests` makes of the key, `survivors` marks what stays, `batch_decision` says what is kept of a batch,
`rewriter` makes the cleaned batches, `cleaner` replaces the files so that a crash leaves the old set or the new one.
Rules: kafka-storage.md#compaction, after Kafka's LogCleaner, Cleaner, LogCleanerManager and SkimpyOffsetMap.
"""
