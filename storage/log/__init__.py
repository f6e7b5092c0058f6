"""One partition's log: segments of record batches. Appends go to the end; reads start anywhere.

`log` combines a reader (`reading`), an appender (`appending`) and a `replacer`, which share the same `parts`. Readers
use one immutable value, `state`; each change publishes a new value by a single assignment. `flush` keeps the recovery
point, and `removal` keeps the files that wait for their deletion. Rules: kafka-storage.md#append,
kafka-storage.md#reading.
"""
