"""The sparse index files of a segment, which give positions in its log (kafka-storage.md#segments)."""
