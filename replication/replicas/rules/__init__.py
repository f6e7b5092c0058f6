"""The rules of replication as pure functions; start with `state.py`. `follower.py` does one fetch between two logs."""
