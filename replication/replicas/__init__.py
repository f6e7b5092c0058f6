"""Replicas of a partition, each in its own data directory: which one leads, which are in sync, how others follow.

Each data directory has an engine of its own (`storage.manager`), as a broker has one: it recovers, retains and compacts
its logs, and alone it stays what a broker of its own would have. `engine.py` stands over them as the engine that users
see: a partition there (`partition.py`) appends to the log that leads, lets the others fetch from it (`rules/follower.py`), and
moves the leadership where a directory fails. The decisions are pure functions (`rules/`); what must
survive is in a file of each directory (`members/`).
"""
