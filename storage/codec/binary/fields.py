"""Named numbers: positions in a batch's header, fields of a `Batches` row, columns of `Columns`, and masks.

Ordinary modules import these names. In compiled modules the names are C constants, which cost nothing: setup.py
generates `fields.pxd` from this module. A compiled module must not use a name from here as the step of `range`,
because Cython makes a C loop only if the step is a literal.
"""

BASE_OFFSET_POSITION = 0
LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CHECKSUM_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
PRODUCER_EPOCH_POSITION = 51
BASE_SEQUENCE_POSITION = 53
RECORD_COUNT_POSITION = 57
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Size of the part of a batch that its length field does not count."""

LEGACY_CHECKSUM_POSITION = 12
LEGACY_ATTRIBUTES_POSITION = 17
LEGACY_TIMESTAMP_POSITION = 18
"""Positions in a v0 or v1 entry. The fields before it are at the same positions as in a v2 batch."""
SMALLEST_LENGTH_V0 = 14
SMALLEST_LENGTH_V1 = 22
SMALLEST_LENGTH = 49
"""Smallest value of the length field in each format: a header without content."""
MIN_RECORD_SIZE = 7
"""Size of the shortest record, which has one byte for each of these: length, attributes, timestamp delta, offset
delta, key length, value length, header count.
"""

POSITION = 0
SIZE_BYTES = 1
BASE_OFFSET = 2
LAST_OFFSET = 3
LEADER_EPOCH = 4
MAGIC = 5
CHECKSUM = 6
ATTRIBUTES = 7
BASE_TIMESTAMP = 8
MAX_TIMESTAMP = 9
PRODUCER_ID = 10
PRODUCER_EPOCH = 11
BASE_SEQUENCE = 12
RECORD_COUNT = 13
RECORD_END = 14
ROW_SIZE = 15
"""Number of integers in a row of `Batches.rows`: the fields of `BatchHeader`, in the same order."""

OFFSETS = 0
TIMESTAMPS = 1
KEY_POSITIONS = 2
KEY_LENGTHS = 3
VALUE_POSITIONS = 4
VALUE_LENGTHS = 5
HEADER_POSITIONS = 6
HEADER_LENGTHS = 7
COLUMN_COUNT = 8
"""Number of columns in `Columns.block`; each column of positions is followed by its column of lengths."""

HEADER_VALUE_POSITION = 2
SPAN_SIZE = 4
"""Integers per header in `Columns.header_spans`: position and length of the name, then of the value."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40
HIDDEN_MASK = 0x10000
"""A bit above the sixteen attribute bits that a file stores, so that no file can set it."""

CURRENT_MAGIC = 2

RECORDS_FIT = 0
LENGTH_MISFIT = 1
NUMBER_CUT_OFF = 2
OFFSET_MISFIT = 3
KEY_MISFIT = 4
VALUE_MISFIT = 5
HEADERS_MISFIT = 6
BYTES_REMAIN = 7
TOO_MANY_HEADERS = 8
"""Results of `decode_records`: success, or why a batch is refused (`record_parts.CAUSES`)."""
