"""Counts of what an engine does, for monitoring: `topic_counts` for one topic (compiled), `engine_counts` for all.

They only grow, from the opening of an engine on. Who counts adds to a number and does nothing else.
"""
