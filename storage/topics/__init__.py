"""Topics over the data directories: found at the start, created, extended, altered and deleted.

`changes` and `registry` keep changes whole despite crashes.
"""
