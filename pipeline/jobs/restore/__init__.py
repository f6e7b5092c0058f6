"""Restoring an archive into topics: what must be written (`plan`, `overlap`, `topics`), and two ways to write it."""
