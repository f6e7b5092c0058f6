"""One segment of a log: its file, its sparse indexes, and the search for its batches (kafka-storage.md#segments)."""
