"""Restoring an archive into topics: what must be written (`plan`), and two ways to write it."""
