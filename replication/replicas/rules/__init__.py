"""The rules of replication as pure functions; begin with `state.py`. `follower.py` is a step between two logs."""
