"""The brokers of a cluster, the leader of each partition, and the requests to brokers."""
