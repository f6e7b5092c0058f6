"""The known topics of a cluster: partitions with readers and producers, and the threads that keep them up to date."""
