"""Retention: decides which of a log's oldest segments are deleted, and deletes them.

`decision.py` is arithmetic over frozen facts, `now` among them; `deletion.py` carries a decision out on a log.
Compaction is no part of it.
"""
