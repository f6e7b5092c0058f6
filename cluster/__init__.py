"""The client of a Kafka cluster: reads and appends batches, manages topics and groups, and mirrors topics to disk.

It needs only the storage engine and coordination: it does not import the mount, Spark or the command.
"""
