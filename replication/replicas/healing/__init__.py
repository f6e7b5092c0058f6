"""Healing: `healer.py` starts a scrub of a damaged segment at once, `renewal.py` copies a whole replica again."""
