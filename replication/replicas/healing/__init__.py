"""Healing: `healer.py` rewrites damage from another replica, `renewal.py` copies a whole replica anew."""
