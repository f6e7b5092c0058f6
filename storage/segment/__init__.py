"""One segment of a log: its file, its sparse indexes, and the search through its batches (kafka-storage.md#segments)."""
