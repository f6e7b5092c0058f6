"""Bounds on decoding one batch: how much a few compressed bytes may inflate to.

A broker bounds a batch's size in the log (max.message.bytes), not its inflated size, so a batch beyond these bounds
may be valid. Such a batch cannot be appended; in a log it can be copied, but not read (OversizeBatchError).
"""

MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""Largest size of a batch as stored, and of its inflated records: 64 times what a broker accepts by default."""

MAX_RECORDS = 2**20
"""Most records of one batch; each takes 64 bytes as columns. 1 MiB holds 150,000 of the shortest records."""

MAX_HEADERS = 2**18

MAX_PARTS = 2**16
"""Most blocks (snappy, lz4) or entries (old formats) in one compressed content."""

MAX_MEMBERS = 2**12
"""Most members of a gzip stream; a producer writes one."""


class OversizeContentError(Exception):
    """Inflated content that exceeds a bound."""
