"""The values that the whole engine uses: distinct integer types and small frozen records (kafka-storage.md#terms).

Offsets count records, positions count bytes. Ranges are half-open, except that values named `last` are inclusive.
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
"""Milliseconds since the epoch, UTC; -1 for a record without a timestamp."""

ProducerId = NewType("ProducerId", int)

NO_TIMESTAMP = Timestamp(-1)
LATEST_TIMESTAMP = Timestamp(2**63 - 1)
"""The largest timestamp that 64 bits can hold."""
NO_PRODUCER_ID = ProducerId(-1)
NO_LEADER_EPOCH = -1

MAX_OFFSET = Offset(2**63 - 2**31 - 1)
"""The largest record offset that a log accepts, so that an offset plus a batch's record count always fits 64 bits."""

ONLINE = "online"
"""The word for the state of a partition or directory that serves. A user reads it, or writes it to try again."""


def later(time: int, span_ms: int) -> Timestamp:
    """Return the time `span_ms` after `time`, at most LATEST_TIMESTAMP; both may be the largest 64-bit number."""
    return Timestamp(min(time + span_ms, LATEST_TIMESTAMP))


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    """The origin of a batch's timestamps, which is the producer or the broker: bit 3 of the batch's attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's name of the origin, as settings and dumps print it."""
        return "CreateTime" if self is TimestampType.CREATE_TIME else "LogAppendTime"


class Isolation(Enum):
    """What a reader sees of transactions (Kafka's isolation.level)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Header(NamedTuple):
    """A record header. Its key is UTF-8 text in Kafka, but kept as bytes here so that invalid text is not lost."""

    key: bytes
    value: bytes | None


class Record(NamedTuple):
    """One record as a value, for small work and tests. Work on many records uses columns."""

    offset: Offset
    timestamp: Timestamp
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class PartitionOffsets(NamedTuple):
    """The bounds of a partition. All of them except `log_start_offset` are exclusive ends."""

    log_start_offset: Offset
    """Earliest readable offset."""
    last_stable_offset: Offset
    """All transactions below it are committed or aborted."""
    high_watermark: Offset
    """Everything below it is replicated; equal to `log_end_offset` if there is one replica."""
    log_end_offset: Offset
    recovery_point: Offset
    """First offset that is not known to be flushed."""
    leader_epoch: int
    """The leader epoch that new batches get."""

    def visible_end(self, isolation: Isolation) -> Offset:
        """Return the exclusive end of what a reader of `isolation` sees."""
        if isolation is Isolation.READ_COMMITTED:
            return min(self.last_stable_offset, self.high_watermark)
        return self.high_watermark


class Appended(NamedTuple):
    """The first and last offset, both inclusive, of what an append wrote.

    If all of its batches were repeats, the offsets are those of the batches in the log.
    """

    base_offset: Offset
    last_offset: Offset
    append_time: Timestamp
    """The broker's time if the topic uses LogAppendTime, otherwise -1."""
    log_start_offset: Offset
    duplicate: bool = False
    """True if every batch was a repeat: nothing was written, and the offsets are those of the batches in the log."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction: readers skip records of `producer_id` from `first_offset` up to its abort marker."""

    producer_id: ProducerId
    first_offset: Offset


class Fetched(NamedTuple):
    """Whole, adjacent batches of one segment, or no batch. The first batch may begin before the requested offset."""

    data: memoryview
    position: Position
    """Position of `data[0]` in the segment's `.log`; 0 if `data` is empty."""
    segment_base_offset: Offset
    next_offset: Offset
    """The offset to read next: one more than the last offset in `data`, or the requested offset if `data` is empty."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions that overlap `data`; only for READ_COMMITTED."""


class HeldFile(Protocol):
    """A file that stays open as long as something refers to this object, even if it is renamed or unlinked."""

    def fileno(self) -> int:
        """Return the file's descriptor."""


class FileSpan(NamedTuple):
    """Whole, adjacent batches in the file of a segment, which can be sent to a reader without being read first."""

    file: HeldFile
    position: Position
    size: int
    next_offset: Offset
    """The offset to read next; if compaction left a gap there, the offset of the first record after the gap."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions, as in `Fetched`."""


class TimestampOffset(NamedTuple):
    """A record that was found by time: its own timestamp and offset."""

    timestamp: Timestamp
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH


class SegmentInfo(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    """Exclusive end: the next segment's base offset; for the active segment, the log end offset."""
    size_bytes: int
    largest_timestamp: Timestamp
    active: bool
    files: tuple[str, ...]
    """Names (not paths) of the segment's existing files, `.log` first."""


class CleaningState(NamedTuple):
    first_dirty_offset: Offset
    """The log is compacted below this offset."""
    cleanable_ratio: float
    """Cleanable bytes divided by the clean and cleanable bytes together: 0 to 1."""


class ReplicaStatus(NamedTuple):
    place: str
    """The replica's data directory or broker."""
    leads: bool
    in_sync: bool
    end_offset: Offset | None
    """The end of the replica's log; None if the log is missing."""
    log_bytes: int | None
    """Size of the replica's log; None if the log is missing."""
    arriving: bool = False
    """True if a replica is being moved to this directory; the partition does not count it yet."""
    reason: str | None = None
    """Why the replica is not in sync, if that is known."""


class PartitionStatus(NamedTuple):
    offsets: PartitionOffsets
    offline: str | None
    """Why the partition does not serve; None if it is online."""
    segments: int | None
    log_bytes: int | None
    """Size of the logs; `index_bytes` is the size of their indexes. None if it is not known."""
    index_bytes: int | None
    first_timestamp: Timestamp
    last_timestamp: Timestamp
    first_dirty_offset: Offset | None = None
    """The first dirty offset; None if the topic is not compacted."""
    cleanable_ratio: float | None = None
    """Cleanable bytes divided by the clean and cleanable bytes together; None if the topic is not compacted."""
    last_flush: Timestamp = NO_TIMESTAMP
    """Time of the last flush to disk; before the first flush, the time of the opening."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """The assigned replicas, preferred leader first; empty if there is only one replica."""
    hidden: str | None = None
    """File, position and cause if a read-only log does not show all batches of its files; otherwise None."""
    missing: str | None = None
    """The files of in-sync replicas that lack offsets, and which offsets; None if no such file is known."""

    @property
    def state(self) -> str:
        return _spelled_state(self.offline)


class PartitionSummary(NamedTuple):
    """A summary of a partition that needs no disk access and no request; some callers look at very many partitions."""

    start_offset: Offset
    stable_end: Offset
    end_offset: Offset
    log_bytes: int | None
    """Size of the partition's batches; None if it is not known."""
    offline: bool
    missing_replicas: int = 0
    """Number of the partition's replicas that are not in sync."""


class DirectoryStatus(NamedTuple):
    path: str
    offline: str | None
    """Why the directory does not serve; None if it is online."""
    partitions: int
    """Number of partitions that are known to be in the directory."""

    @property
    def state(self) -> str:
        return _spelled_state(self.offline)


def _spelled_state(offline: str | None) -> str:
    return ONLINE if offline is None else f"offline: {offline}"
