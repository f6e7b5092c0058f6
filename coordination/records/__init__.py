"""The record formats of Kafka's coordinators, the consumers' embedded protocol, and the partition assignors."""
