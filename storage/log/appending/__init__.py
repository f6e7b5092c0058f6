"""Appends of a log, with the rolls and flushes that are due by them; most small ones take a shorter way.

`roles` begins the epochs of a leader, and has a follower take what its leader wrote.
"""
