"""Replicas of a partition, each in its own data directory: which one leads, which are in sync, how others follow.

Each data directory has an engine of its own (`members/`), whose logs a broker could take over. `engine.py` is the
engine that users see. Its partitions (`partition.py`) append to the leader's log and let the others fetch
(`rules/follower.py`); `controller.py` elects leaders. The decisions are pure functions (`rules/`).
"""
