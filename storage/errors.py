"""Every error of the engine. A message is one line with the thing, the cause and the remedy; callers use the types."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.model import Position


class StorageError(Exception):
    """Base of all errors of the engine."""


class InvalidNameError(StorageError):
    """A topic or partition name that Kafka's rules do not allow."""


class UnknownTopicError(StorageError):
    """The topic does not exist, or has no such partition."""

    topic: str | None = None
    """The unknown name; None if the topic exists and only the partition is unknown."""

    @classmethod
    def of(cls, topic: str) -> UnknownTopicError:
        error = cls(f"{topic}: no such topic")
        error.topic = topic
        return error

    @classmethod
    def of_partition(cls, topic: str, number: int, partitions: Sized) -> UnknownTopicError:
        count = len(partitions)
        present = "partition 0 alone" if count == 1 else f"{count} partitions, numbered from 0"
        return cls(f"{topic}/{number}: no such partition; {topic} has {present}")


class TopicExistsError(StorageError):
    """The topic exists, or its name collides with an existing one (as `a.b` does with `a_b`)."""


class TopicNotEmptyError(StorageError):
    """A topic was to be deleted only if it was empty, but it has `records` records."""

    def __init__(self, topic: str, records: int) -> None:
        super().__init__(f"{topic}: holds {records} records")
        self.records = records


class InvalidConfigError(StorageError):
    """An unknown setting, or an invalid value."""


class OffsetOutOfRangeError(StorageError):
    """An offset is outside [log start offset, log end offset]."""

    def __init__(self, offset: int, start_offset: int, end_offset: int, where: str = "partition") -> None:
        super().__init__(f"{where}: offset {offset} is outside [{start_offset}, {end_offset})")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class InvalidRecordError(StorageError):
    """A batch or record that a log must not accept: wrong format, keys or counts, or a client's control batch."""

    def __init__(self, message: str, records: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.records = records
        """Indexes of the invalid records in the batch, from 0; empty if the whole batch is invalid."""


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp exceeds message.timestamp.before.max.ms or message.timestamp.after.max.ms."""


class RecordTooLargeError(StorageError):
    """A record or batch is larger than max.message.bytes or segment.bytes."""


class PartlyAppendedError(StorageError):
    """Only the first `appended` of an append's `batches` are in the log; the cause is the error of the next batch."""

    def __init__(self, message: str, *, appended: int, batches: int) -> None:
        super().__init__(f"{message}; the first {appended} of {batches} batches are in the log")
        self.appended = appended
        self.batches = batches


class NotEnoughReplicasError(StorageError):
    """Fewer replicas than min.insync.replicas are in sync. Nothing was appended."""


class NotEnoughReplicasAfterAppendError(NotEnoughReplicasError):
    """Too few replicas have the records. The leader has them: they become visible later; do not append them again."""


class NotLeaderError(StorageError):
    """An append to a replica that is a follower, not the partition's leader."""


class ProducerFencedError(StorageError):
    """A producer epoch or coordinator epoch is older than the newest epoch seen."""


class OutOfOrderSequenceError(StorageError):
    """A sequence number is neither the next number nor a repeat of a known batch."""


class InvalidTransactionStateError(StorageError):
    """Transactional data outside a transaction, or other data inside a transaction."""


class SegmentDeletedError(StorageError):
    """Retention, compaction or the deletion of the topic removed the records or the file."""


class PolicyViolationError(StorageError):
    """The topic's cleanup.policy forbids the operation, such as DeleteRecords on a topic that is only compacted."""


class GroupError(StorageError):
    """Base of the errors of groups. Raised itself if a group's coordinator does not serve; its text has the reason."""


class UnknownGroupError(GroupError):
    """The group does not exist."""


class InvalidGroupError(GroupError):
    """An invalid group ID."""


class GroupExistsError(GroupError):
    """The group to be created exists, or its name belongs to a group of another kind."""


class GroupNotEmptyError(GroupError):
    """The group has members, so it cannot be deleted, and only its members can move its positions."""


class GroupFullError(GroupError):
    """The group has as many members as `group.max.size` allows."""


class IncompatibleMemberError(GroupError):
    """The member supports no assignor that the group's other members support."""


class NotAssignedError(GroupError):
    """A member committed a position in a partition that it does not hold, or no longer holds."""


class InvalidPositionError(GroupError):
    """The position cannot be committed, because it is not an offset, or its metadata is too long."""


class NoPositionError(GroupError):
    """The group has no position in a partition, or a position outside the log, and `auto.offset.reset=none`."""


class SessionClosedError(GroupError):
    """The session of a share group was closed, or the group was deleted."""


class RecordNotHeldError(GroupError):
    """The session of a share group does not hold the record, or no longer holds it (Kafka: INVALID_RECORD_STATE)."""


class GroupsUnsupportedError(GroupError):
    """The engine, or the cluster, does not support groups of this kind."""


class CorruptionError(StorageError):
    """Bytes on disk differ from the bytes that were written. The error has the file, the position and the cause."""

    def __init__(self, file: Path | str, position: int, cause: str) -> None:
        super().__init__(f"{file}: position {position}: {cause}")
        self.file = Path(file)
        self.position = position
        self.cause = cause


class NotAPlainFileError(CorruptionError):
    """Something other than a plain file has the name of a data directory's file. It is neither read nor written."""

    def __init__(self, file: Path | str, kind: str) -> None:
        super().__init__(file, 0, f"a {kind} where a plain file belongs; put the file back, or remove it")


class OversizeError(CorruptionError):
    """A batch on disk exceeds the bounds of decoding: it can be copied as it is, but its records are not read."""


class SearchTooLongError(StorageError):
    """A search reached its limit before it was complete."""


class CorruptBatchError(StorageError):
    """A fault that the codec found in a buffer; `position` counts from the buffer's start. The log adds the file."""

    def __init__(self, position: int, cause: str) -> None:
        super().__init__(f"position {position}: {cause}")
        self.position = position
        self.cause = cause

    def in_file(self, file: Path | str, position: int) -> CorruptionError:
        """Return the same fault with its file, and with the batch's position in the file."""
        return CorruptionError(file, position, self.cause)


class OversizeBatchError(CorruptBatchError):
    """A batch that exceeds the bounds of decoding (`storage.codec.compression.bounds`), but may be valid."""

    def in_file(self, file: Path | str, position: int) -> CorruptionError:
        return OversizeError(file, position, self.cause)


class TornBatchError(CorruptBatchError):
    """A batch ends before its declared size, which shows an interrupted write and not corruption."""


class PartitionOfflineError(StorageError):
    """The partition accepts no requests until it is reopened, because a fsync or its directory failed."""


class PartitionGoneError(PartitionOfflineError):
    """The log accepts no requests any more: its topic was deleted, or another log serves in its place."""


class DirectoryLockedError(StorageError):
    """Another process owns the data directory."""

    def __init__(self, directory: Path, holder_pid: int | None, mountpoint: Path | None = None) -> None:
        self.holder = f"process {holder_pid}" if holder_pid else "another process"
        if mountpoint is not None:
            self.holder = f"{self.holder}, the mount at {mountpoint}"
        super().__init__(
            f"{directory}: in use by {self.holder}; stop it first, or read beside it: topicfs mount --read-only"
        )
        self.directory = directory
        self.holder_pid = holder_pid


class MissingReplicasError(StorageError):
    """A replica directory that may have later records is missing, and no user agreed to continue without it."""


class RecordsLostError(PolicyViolationError):
    """The replica that should be removed has records that no other replica has."""


class ForkedReplicasError(StorageError):
    """Two directories of a set of replicas were written independently: each may have records that the other lacks."""


class NotALogDirectoryError(StorageError):
    """The directory contains something other than Kafka's own entries."""


class DuplicatePartitionError(StorageError):
    """The same partition is in two data directories, and it is not known which of them counts."""


class ReadOnlyError(StorageError):
    """A change was requested from an engine that was opened read-only."""


class ClusterError(StorageError):
    """The Kafka cluster cannot be reached, or refuses the request."""


class NoAnswerError(ClusterError, PartitionOfflineError):
    """No broker answered in time, or no broker leads the partition; another attempt may succeed."""


class NotAuthorizedError(ClusterError):
    """The Kafka cluster does not allow its user to do the operation."""


class Finding(NamedTuple):
    """A fault in a file."""

    file: Path
    position: Position | None
    """Position of the fault in the file; None: the whole file."""
    cause: str

    @classmethod
    def of(cls, error: CorruptionError) -> Finding:
        """Return the fault that a reader raised as a CorruptionError."""
        return cls(error.file, Position(error.position), error.cause)
