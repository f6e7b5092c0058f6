"""Batches that come in: whether they may, and their conversion to the form that the topic wants.

Rules: kafka-storage.md#append. `batches` looks at headers, `conversion` at the records.
"""
