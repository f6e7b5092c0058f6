"""Record batches as bytes and as values: bytes in, values out; no file, no clock.

From what knows least: `memory` (raw bytes for compiled code), `batch` (the 61-byte header), `lz4_frame` and
`compression` (Kafka's framings), `legacy` (formats v0 and v1), `columns` (reading), `stamp` and `batch_writer` (writing),
`records` (the way in for others), `control` (transaction markers). The hot loops are compiled from these very sources,
which also run uncompiled. The formats: kafka-storage.md#record-batches.
"""
