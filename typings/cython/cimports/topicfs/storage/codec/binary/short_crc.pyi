"""`storage/codec/binary/short_crc.pxd`."""

from cython import p_uchar

def has_short_crc32c() -> int: ...
def short_crc32c(octets: p_uchar, size: int) -> int: ...
def three_crc32c_fit(
    first: p_uchar,
    first_size: int,
    first_sum: int,
    second: p_uchar,
    second_size: int,
    second_sum: int,
    third: p_uchar,
    third_size: int,
    third_sum: int,
) -> bool: ...
