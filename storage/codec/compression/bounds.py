"""Bounds on decoding one batch: what a few compressed bytes may inflate to.

A broker bounds the bytes of a batch as it is in the log (max.message.bytes), not what they inflate to. A batch
beyond these bounds may be sound. It is refused where it would come in, and where a directory holds it all the same, it
can be copied as it is, but its records are not read: OversizeBatchError says which bound it exceeds.
"""

MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""Largest size of a batch as it stands, and of its inflated records: 64 times what a broker takes by default."""

MAX_RECORDS = 2**20
"""Most records of one batch; each takes 64 bytes as columns. With the shortest records 1 MiB of a batch holds 150,000 of them."""

MAX_HEADERS = 2**18
"""Most headers of one record."""

MAX_PARTS = 2**16
"""Blocks (snappy, lz4) or entries (old formats) that a compressed content consists of."""

MAX_MEMBERS = 2**12
"""Most members of a gzip stream; a producer writes one."""


class OversizeContentError(Exception):
    """Inflated content that exceeds a bound."""
