"""Compaction: only the newest record of each key stays.

`choose` decides which log is dirty enough and how far it may be cleaned, `offset_map` remembers each key's newest
offset by what `digests` makes of the key, `survivors` marks what stays, `retain` decides batch by batch, `rewrite`
makes the cleaned batches, `group` says which segments merge, `clean` replaces the files so that a crash leaves the
old set or the new one. Rules: kafka-storage.md#compaction, after
Kafka's LogCleaner, Cleaner, LogCleanerManager and SkimpyOffsetMap.
"""
