"""Bounds on decoding one batch: what a few compressed bytes may inflate to.

A broker bounds a batch's bytes in the log (max.message.bytes), not what they inflate to, so a batch beyond these
bounds may be sound. It is not appended; in a log it can be copied, but not read (OversizeBatchError).
"""

MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""Largest size of a batch as it stands, and of its inflated records: 64 times what a broker takes by default."""

MAX_RECORDS = 2**20
"""Most records of one batch; each takes 64 bytes as columns. With the shortest records 1 MiB of a batch holds 150,000 of them."""

MAX_HEADERS = 2**18

MAX_PARTS = 2**16
"""Blocks (snappy, lz4) or entries (old formats) that a compressed content consists of."""

MAX_MEMBERS = 2**12
"""Most members of a gzip stream; a producer writes one."""


class OversizeContentError(Exception):
    """Inflated content that exceeds a bound."""
