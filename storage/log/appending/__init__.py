"""Appends to a log, with the rolls and flushes that they cause; most small appends take a shorter path."""
