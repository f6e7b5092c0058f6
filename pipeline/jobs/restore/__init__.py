"""Restoring an archive into topics: `plan` finds the records to write, and two other modules write them."""
