"""Recovery: loads a partition's directory as a log, after a clean stop or a crash (kafka-storage.md#loading).

`loader` does all steps in Kafka's order. On a read-only disk they change only memory, and hide invalid bytes.
"""
