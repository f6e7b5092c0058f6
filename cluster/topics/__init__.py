"""The topics of a cluster as last seen: partitions with reader and producer, and the threads that update them."""
