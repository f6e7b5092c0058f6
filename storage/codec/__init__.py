"""The codec of record batches: bytes in, values out; it uses no file and no clock.

From what knows least: `binary` (names for numbers, raw memory for compiled code), `headers` (a batch's header, as read and
as its writer decides it), `batch` (headers found in bytes), `compression` (what is inflated, and formats v0 and v1),
`record_parts`, `columns` and `value_copy` (reading), `batch_writer` (writing), `records` (the way in for others), `control` and
`aborted_filter` (transactions). The hot loops are compiled from these very sources, which also run uncompiled. The
formats: kafka-storage.md#record-batches.
"""
