"""Replicas of a partition in several data directories: which replica leads, which are in sync, how followers fetch.

Each data directory has its own engine (`directories/`), whose logs a broker could take over. `engine.py` is the
engine for users. Its partitions (`partition.py`) append to the leader's log and let the followers fetch
(`rules/follower.py`). `controller.py` elects leaders. The decisions are pure functions (`rules/`).
"""
