"""Kafka's protocol over one connection: its messages field by field, TLS, and authentication."""
