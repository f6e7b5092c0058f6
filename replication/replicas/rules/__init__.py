"""The rules of replication: who leads and is in sync, where logs part, what a follower does, where replicas are placed.

Begin with `state.py`. All but `follower.py`, which is a step between two logs, are pure functions of frozen values.
"""
