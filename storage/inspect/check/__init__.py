"""Every byte of a data directory held against what it must be: findings, each with file, position and cause.

`directory` walks the data directory and its checkpoints, `partition` one partition's files, `segment` one segment;
`batches` knows what must be true of batches and records, `indexes` of the entries that lead to them, `chunks` goes
through a log in pieces that fit in memory. Nothing is changed and nothing locked.
"""
