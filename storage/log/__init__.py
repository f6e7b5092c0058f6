"""One partition's log: segments of record batches, appended to at the end and read from anywhere.

Rules: kafka-storage.md#append, kafka-storage.md#reading.

The way of an append runs `growing`: `append` (may these batches come in?), `conform` (in the topic's form),
`producers` (no repeat, no gap), `roll` (is a new segment due?), `segment` (bytes and index entries), then the new end.
The way of a read runs `readable` (within bounds?), `read` (segment, position by the index), `scan` (batch by batch from
there); `times` goes by timestamp first. `log` puts it together and takes away; `durability` and `removal` keep house.
"""
