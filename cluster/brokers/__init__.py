"""A cluster's brokers, who leads what, and what they are asked for: batches, bounds, sizes, settings, changes of topics."""
