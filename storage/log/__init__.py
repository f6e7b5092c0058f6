"""One partition's log: segments of record batches, appended to at the end and read from anywhere.

`log` is a reader (`reading`), an appender (`appending`) and a `replacer` around the same `parts`. Readers see one
immutable value, `state`; a change publishes the next one by one assignment. `flush` keeps the recovery point,
`removal` the files that wait for their deletion. Rules: kafka-storage.md#append, kafka-storage.md#reading.
"""
