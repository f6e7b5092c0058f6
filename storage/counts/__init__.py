"""The counts of what an engine does, for those who watch it: `topic_counts` are a topic's (compiled), `engine_counts` all of them.

They only grow, from the opening of an engine on. Who counts adds to a number and does nothing else.
"""
