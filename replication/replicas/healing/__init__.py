"""Healing: what is damaged in one replica is rewritten from another.

Where compaction made them different, a damaged one is copied anew (`renewal.py`); `healer.py` decides when that is done.
"""
