"""Restoring an archive into topics: `plan` finds the records to write, and there are two ways to write them."""
