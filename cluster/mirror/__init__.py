"""The mirror: topics of a cluster in a data directory, record batches at their own offsets as the brokers have them."""
