"""The sparse index files of a segment, which lead to positions in its log (kafka-storage.md#segments)."""
