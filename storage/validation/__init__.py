"""Validation of batches before an append, and their conversion to the format that the topic requires.

Rules: kafka-storage.md#append. `batches` looks at headers, `conversion` at the records.
"""
