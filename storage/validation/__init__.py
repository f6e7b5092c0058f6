"""Validation of batches before an append (`batches`), and their conversion (`conversion`): kafka-storage.md#append."""
