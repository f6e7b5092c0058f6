"""One segment of a log: its file, its sparse indexes, and the search through its batches (kafka-storage.md#segments).

`roll` decides when the next one is due, `sparse` which batch gets an index entry, `scan` walks over batches, `chain`
has the segments of a log.
"""
