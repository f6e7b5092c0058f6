"""Appends to a log, with the rolls and flushes that they cause; most small appends take a shorter path.

`roles` begins the epochs of a leader, and has a follower take what its leader wrote.
"""
