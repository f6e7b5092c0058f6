"""The data directories of a set of replicas, an engine for each (`member.py`), and their shared state (`agreement.py`)."""
