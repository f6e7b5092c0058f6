"""Every byte of a data directory held against what it must be: findings, each with file, position and cause.

`directory` walks the data directory and its checkpoints, `partition` one partition's files, `segment` one segment;
`batches` knows what must be true of batches and records, `indexes` of the entries that lead to them, `chunks` goes
through a log in pieces that fit in memory. Each segment can be checked by itself, anywhere (`segment.SegmentWork`), and
tells its numbers (`facts`); what only all of them show is found by `joined`. Nothing is changed and nothing locked.
"""
