"""Kafka's protocol over one connection: its messages field by field, and how client and broker know each other."""
