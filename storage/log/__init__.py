"""One partition's log: segments of record batches, appended to at the end and read from anywhere.

Rules: kafka-storage.md#append, kafka-storage.md#reading.

An append is `appending`: `storage.validation` decides whether the batches may come in and converts them, `producers`
refuses gaps and leaves out repeats, `roll` decides whether a new segment is due, `storage.segment` writes the bytes and
the index entries; then the new end is published. A read is `readable`, which checks the bounds, and `read`, which finds
the segment and, by its index, the position; `times` looks a timestamp up first. `log` truncates, deletes and replaces
segments; `durability` and `flusher` keep the recovery point, `removal` the files that wait for their deletion.
"""
