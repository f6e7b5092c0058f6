"""One partition's log: segments of record batches, appended to at the end and read from anywhere.

The way of an append runs `append` (may these batches come in?), `roll` (is a new segment due?), `segment` (bytes
and index entries), `log` (new end, epochs, listeners). The way of a read runs `log` (within bounds?), `lookup` (offset or
time to segment and position), `scan` (batch by batch from there). `producers` and `removal` keep house.
"""
