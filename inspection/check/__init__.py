"""The check of every byte of a data directory: findings, each with file, position and cause.

`directory` walks the data directory and its checkpoints, `partition` one partition's files, `segment` one segment,
in pieces that fit in memory; `batches` knows what must be true of batches and records, `storage.indexes.entries` of the
entries that lead to them. Each segment can be checked by itself, anywhere (`segment.SegmentWork`), and returns its
numbers (`facts`); what only all of them together show is found by `joined`. Nothing is changed and nothing locked.
"""
