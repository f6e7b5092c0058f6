"""The rules of replication as pure functions; start with `state.py`. `follower.py` copies from one log to another."""
