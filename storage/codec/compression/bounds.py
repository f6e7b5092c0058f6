"""Bounds for decoding one batch: to how many bytes and parts its content may inflate.

A broker limits the size of a batch in the log (max.message.bytes), but not its inflated size, so a batch that exceeds
these bounds may be valid. Such a batch cannot be appended. If it is in a log it can be copied, but not read
(OversizeBatchError).
"""

MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""Largest size of a batch as stored, and of its inflated records: 64 times a broker's default limit."""

MAX_RECORDS = 2**20
"""Largest number of records in a batch; as columns, each record takes 64 bytes. For comparison: a batch of 1 MiB has
at most 150,000 records.
"""

MAX_HEADERS = 2**18

MAX_PARTS = 2**16
"""Largest number of blocks (snappy, lz4) or entries (old formats) in the compressed content of one batch."""

MAX_MEMBERS = 2**12
"""Largest number of members in a gzip stream; a producer writes one member."""


class OversizeContentError(Exception):
    """The inflated content exceeds a bound."""
