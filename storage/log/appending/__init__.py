"""Appends to a log, and the rolls and flushes that appends cause. Most small appends take a shorter path."""
