"""The data directories of a set of replicas (`replica_directory.py`), their engines (`engine.py`) and shared state (`agreement.py`)."""
