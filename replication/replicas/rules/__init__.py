"""The rules of replication: who leads, who is in sync, where logs diverge, where replicas are placed.

Begin with `state.py`. All but `follower.py`, which is a step between two logs, are pure functions of frozen values.
"""
