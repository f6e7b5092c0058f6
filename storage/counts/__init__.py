"""Counters of an engine's work since it was opened, for monitoring: `topic_counts` (compiled) and `engine_counts`."""
