"""The records of Kafka's coordinators, the protocol of consumers, and the assignors that choose their partitions."""
