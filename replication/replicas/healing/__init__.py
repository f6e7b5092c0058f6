"""Healing of replicas: what is damaged in one is written again from another.

Where compaction made them different, a damaged one is copied anew (`renewal.py`); `healer.py` decides when that is done.
"""
