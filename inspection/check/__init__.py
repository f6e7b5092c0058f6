"""The check of every byte of a data directory: findings, each with file, position and cause.

`directory` checks a data directory, `partition` one partition, `segment` one segment (anywhere: see `SegmentWork`),
and `batches` its batches. Nothing is changed or locked.
"""
