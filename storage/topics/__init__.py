"""Topics over the data directories: found at the start, created, extended, altered and deleted.

After a crash, `changes` and `registry` leave each change done as a whole, or not at all.
"""
