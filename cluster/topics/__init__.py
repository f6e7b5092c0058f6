"""The known topics of a cluster: partitions with readers and producers; `watch` asks the brokers for metadata."""
