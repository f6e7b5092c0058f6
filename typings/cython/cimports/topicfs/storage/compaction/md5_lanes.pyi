"""`storage/compaction/md5_lanes.pxd`."""

from cython import p_longlong, p_uchar

def has_md5_lanes() -> int: ...
def md5_halves(
    data: p_uchar, positions: p_longlong, sizes: p_longlong, count: int, halves: p_longlong
) -> None: ...
