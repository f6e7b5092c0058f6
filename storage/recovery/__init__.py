"""Recovery: loads a partition's directory as a log, after a clean stop or a crash (kafka-storage.md#loading).

`loader` does all steps in Kafka's order, `segment_recovery` checks a segment and rebuilds its indexes, `repair`
corrects headers. On a read-only disk all happens in memory, and unsound bytes are not shown. `followed_log` follows a
living owner.
"""
