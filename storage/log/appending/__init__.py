"""Appends of a log, with the rolls and flushes that are due by them; most small ones take a shorter way."""
