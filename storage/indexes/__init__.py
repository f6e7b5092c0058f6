"""The sparse index files of a segment, from offset or timestamp to a position in its log (kafka-storage.md#segments)."""
