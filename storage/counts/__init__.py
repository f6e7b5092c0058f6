"""Counts of what an engine does since it was opened, for monitoring: `topic_counts` (compiled) and `engine_counts`."""
