"""Retention: `decision.py` decides, as pure functions, which of a log's oldest segments go; `deletion.py` deletes them."""
