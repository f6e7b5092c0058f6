"""Topics over the data directories: found at the start, created, extended, altered and deleted.

`reconciliation`, `assembly` and `loading` bring them from the directories into memory; `changes` changes them, safe
from crashes through `registry`: the one file, the same in each directory, that says what is under way. `reopening`
loads again what failed.
"""
