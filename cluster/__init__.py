"""The client of a Kafka cluster: record batches as the brokers keep them, and the mirror of topics on disk.

It stands on the engine alone: nothing here knows the mount, Spark or the command.
"""
