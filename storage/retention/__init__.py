"""Retention: which of a log's oldest segments may go, and letting them go.

`decide.py` is arithmetic over frozen facts, `now` among them; `apply.py` carries a decision out on a log.
Compaction is no part of it.
"""
