"""One partition's log: segments of record batches, appended to at the end and read from anywhere.

Rules: kafka-storage.md#append, kafka-storage.md#reading.

`log` is a reader, an appender and a replacer around the same `parts`; what readers see is one immutable value, `state`,
which a change publishes by one assignment. `appending`: `storage.validation` decides whether batches may come in and
converts them, `producers` refuses gaps and leaves out repeats, `storage.segment` decides whether a new segment is due (`roll`) and
writes the bytes and the index entries; then the new state is published. `reading` finds offsets and
times. `replacer` truncates, deletes and replaces segments; `flush` keeps the recovery point, `removal` the files that
wait for their deletion.
"""
