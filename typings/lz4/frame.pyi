"""Whole frames."""

BLOCKSIZE_MAX64KB: int

def compress(
    data: bytes | bytearray | memoryview,
    *,
    compression_level: int = ...,
    block_size: int = ...,
    content_checksum: bool = ...,
    block_checksum: bool = ...,
    block_linked: bool = ...,
    store_size: bool = ...,
) -> bytes: ...
def decompress(data: bytes | bytearray | memoryview) -> bytes: ...
