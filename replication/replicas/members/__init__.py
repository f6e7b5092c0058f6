"""The data directories of a set of replicas (`member.py`), their engines (`engine.py`) and shared state (`agreement.py`)."""
