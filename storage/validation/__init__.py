"""Validation of batches that are appended, and their conversion to the form that the topic requires.

Rules: kafka-storage.md#append. `batches` looks at headers, `conversion` at the records.
"""
