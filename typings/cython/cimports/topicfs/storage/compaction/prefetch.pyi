"""`storage/compaction/prefetch.pxd`."""

from cython import p_longlong

def prefetch_word(words: p_longlong, at: int) -> None: ...
