"""The values that the whole engine uses: distinct integer types and small frozen records (kafka-storage.md#terms).

Offsets count records, positions bytes. Ranges are half-open; names with `last` are inclusive.
"""

from enum import Enum, IntEnum
from typing import NamedTuple, NewType, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Any object that exports bytes in memory."""

Offset = NewType("Offset", int)
"""A record's number in its partition."""

Position = NewType("Position", int)
"""The number of a byte in a file."""

Timestamp = NewType("Timestamp", int)
"""Milliseconds since the epoch, UTC; -1 if a record has none."""

ProducerId = NewType("ProducerId", int)

NO_TIMESTAMP = Timestamp(-1)
LATEST_TIMESTAMP = Timestamp(2**63 - 1)
"""The largest timestamp of 64 bits."""
NO_PRODUCER_ID = ProducerId(-1)
NO_LEADER_EPOCH = -1

MAX_OFFSET = Offset(2**63 - 2**31 - 1)
"""The largest record offset that a log accepts: an offset plus a batch's record count always fits 64 bits."""

ONLINE = "online"
"""The state of what is serving, as users read and write it."""


def later(time: int, span_ms: int) -> Timestamp:
    """Return the time `span_ms` after `time`, at most LATEST_TIMESTAMP: either may be the largest 64-bit number."""
    return Timestamp(min(time + span_ms, LATEST_TIMESTAMP))


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    """The origin of a batch's timestamps, the producer or the broker: bit 3 of its attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's spelling, as settings and dumps print it."""
        return "CreateTime" if self is TimestampType.CREATE_TIME else "LogAppendTime"


class Isolation(Enum):
    """The isolation of a reader (Kafka's isolation.level)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Header(NamedTuple):
    """A record header. Its key, UTF-8 text on the wire, is kept as bytes so that nothing is lost."""

    key: bytes
    value: bytes | None


class Record(NamedTuple):
    """One record as a value, for small work and tests. Bulk work uses columns."""

    offset: Offset
    timestamp: Timestamp
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class PartitionOffsets(NamedTuple):
    """The bounds of a partition. All but `log_start_offset` are exclusive ends."""

    log_start_offset: Offset
    """Earliest readable offset."""
    last_stable_offset: Offset
    """All transactions below it are decided."""
    high_watermark: Offset
    """Everything below it is replicated; equal to `log_end_offset` with one replica."""
    log_end_offset: Offset
    recovery_point: Offset
    """First offset not known to be flushed."""
    leader_epoch: int
    """Leader epoch of new batches."""

    def visible_end(self, isolation: Isolation) -> Offset:
        """Return the exclusive end of what a reader of `isolation` sees."""
        if isolation is Isolation.READ_COMMITTED:
            return min(self.last_stable_offset, self.high_watermark)
        return self.high_watermark


class Appended(NamedTuple):
    """The first and last offset (both inclusive) that an append wrote; repeats count only if nothing was written."""

    base_offset: Offset
    last_offset: Offset
    append_time: Timestamp
    """The broker's clock for LogAppendTime topics, else -1."""
    log_start_offset: Offset
    duplicate: bool = False
    """Every batch was an idempotent producer's repeat: nothing was written. The offsets are the lowest and the
    highest that the batches have in the log.
    """


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` up to its abort marker do not count."""

    producer_id: ProducerId
    first_offset: Offset


class Fetched(NamedTuple):
    """Whole, adjacent batches of one segment, or none; the first may begin before the requested offset."""

    data: memoryview
    position: Position
    """Position of `data[0]` in the segment's `.log`; 0 if empty."""
    segment_base_offset: Offset
    next_offset: Offset
    """The offset to read next: one past the last offset in `data`, or the requested offset if empty."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """For READ_COMMITTED: the aborted transactions that overlap `data`."""


class HeldFile(Protocol):
    """A file that stays open, under whatever name or none, as long as something refers to this."""

    def fileno(self) -> int:
        """Return its descriptor."""


class FileSpan(NamedTuple):
    """Whole, adjacent batches in the file of a segment, to be sent to a reader without being read first."""

    file: HeldFile
    position: Position
    size: int
    next_offset: Offset
    """The offset to read next; where compaction left a gap, that of the first record behind it."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """As those of `Fetched`."""


class TimestampOffset(NamedTuple):
    """A record found by time: the record's own timestamp and offset."""

    timestamp: Timestamp
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH


class SegmentInfo(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    """Exclusive: the next segment's base offset, or the log end offset for the active one."""
    size_bytes: int
    largest_timestamp: Timestamp
    active: bool
    files: tuple[str, ...]
    """Names (not paths) of the files that exist for it, `.log` first."""


class CleaningState(NamedTuple):
    first_dirty_offset: Offset
    """Everything below it was compacted."""
    cleanable_ratio: float
    """Cleanable bytes as a share of clean and cleanable bytes: 0 to 1."""


class ReplicaStatus(NamedTuple):
    place: str
    """Its data directory or its broker."""
    leads: bool
    in_sync: bool
    end_offset: Offset | None
    """Its log end; None if its log is missing."""
    log_bytes: int | None
    """Size of its log; None if its log is missing."""
    arriving: bool = False
    """True for the copy of a replica that is being moved there; the partition does not count it yet."""
    reason: str | None = None
    """Why it is not in sync, if known."""


class PartitionStatus(NamedTuple):
    offsets: PartitionOffsets
    offline: str | None
    """Why it does not serve; None: it is online."""
    segments: int | None
    log_bytes: int | None
    """Size of the logs, as `index_bytes` is that of their indexes; None if unknown."""
    index_bytes: int | None
    first_timestamp: Timestamp
    last_timestamp: Timestamp
    first_dirty_offset: Offset | None = None
    """The first dirty offset; None if nothing is compacted."""
    cleanable_ratio: float | None = None
    """Cleanable bytes as a share of clean and cleanable bytes; None if nothing is compacted."""
    last_flush: Timestamp = NO_TIMESTAMP
    """Time of the last flush to disk, or of the opening."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """The assigned replicas, preferred leader first; empty if there is only one."""
    hidden: str | None = None
    """File, position and cause if a read-only log ends before its files do; None: it has all of them."""
    missing: str | None = None
    """The files of in-sync replicas that lack offsets, and which offsets; None: no such file is known."""

    @property
    def state(self) -> str:
        return _spelled_state(self.offline)


class PartitionSummary(NamedTuple):
    """A summary that needs no disk access and no request, for callers that look at very many partitions."""

    start_offset: Offset
    stable_end: Offset
    end_offset: Offset
    log_bytes: int | None
    """Size of its batches; None if unknown."""
    offline: bool
    missing_replicas: int = 0
    """Number of its replicas that are not in sync."""


class DirectoryStatus(NamedTuple):
    path: str
    offline: str | None
    """Why it does not serve; None: it is online."""
    partitions: int
    """Number of partitions known to be in it."""

    @property
    def state(self) -> str:
        return _spelled_state(self.offline)


def _spelled_state(offline: str | None) -> str:
    return ONLINE if offline is None else f"offline: {offline}"
