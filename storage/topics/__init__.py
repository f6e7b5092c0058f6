"""Topics over the data directories: found at the start, created, extended, altered and deleted.

`reconciliation`, `assembly` and `loader` load them from the directories; `changes` changes them, safe
from crashes through `registry`: the one file, the same in each directory, that says what is under way. `restart`
loads again what failed.
"""
