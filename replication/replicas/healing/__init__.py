"""Healing: `healer.py` scrubs damaged segments at once, `renewal.py` copies replicas, `resolution.py` ends forks."""
