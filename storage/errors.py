"""Every error of the engine. A message is one line: the thing, the cause, the remedy. Callers use types, not texts."""

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
    """No such topic or partition."""

    topic: str | None = None
    """The unknown name; None if only the partition is unknown."""

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
    """The topic exists, or its name collides with one (`a.b` and `a_b`)."""


class TopicNotEmptyError(StorageError):
    """A topic that is to be deleted only if it is empty has `records`."""

    def __init__(self, topic: str, records: int) -> None:
        super().__init__(f"{topic}: holds {records} records")
        self.records = records


class InvalidConfigError(StorageError):
    """An unknown setting, or a bad value."""


class OffsetOutOfRangeError(StorageError):
    """An offset outside [log start offset, log end offset]."""

    def __init__(self, offset: int, start_offset: int, end_offset: int, where: str = "partition") -> None:
        super().__init__(f"{where}: offset {offset} is outside [{start_offset}, {end_offset})")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class InvalidRecordError(StorageError):
    """A batch or record that a log must not accept (format, keys, counts, control batches of clients)."""

    def __init__(self, message: str, records: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.records = records
        """Indexes of the bad records in the batch, from 0; empty if the whole batch is bad."""


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp beyond message.timestamp.before.max.ms or after.max.ms."""


class RecordTooLargeError(StorageError):
    """A record or batch larger than max.message.bytes (or than segment.bytes)."""


class PartlyAppendedError(StorageError):
    """Only the first `appended` of an append's `batches` are in the log; a later one was refused, with the cause."""

    def __init__(self, message: str, *, appended: int, batches: int) -> None:
        super().__init__(f"{message}; the first {appended} of {batches} batches are in the log")
        self.appended = appended
        self.batches = batches


class NotEnoughReplicasError(StorageError):
    """Fewer replicas in sync than min.insync.replicas. Nothing was appended."""


class NotEnoughReplicasAfterAppendError(NotEnoughReplicasError):
    """Too few replicas have the records. The leader has them, so they show later; appending again doubles them."""


class NotLeaderError(StorageError):
    """An append to a replica that follows the partition's leader."""


class ProducerFencedError(StorageError):
    """A producer epoch or coordinator epoch older than the newest one seen."""


class OutOfOrderSequenceError(StorageError):
    """A sequence number that is neither the next one nor a repeat of a known batch."""


class InvalidTransactionStateError(StorageError):
    """Transactional data without an open transaction, or plain data inside one."""


class SegmentDeletedError(StorageError):
    """Records or a file that retention, compaction or the deletion of the topic removed."""


class PolicyViolationError(StorageError):
    """An operation that the topic's cleanup.policy forbids (DeleteRecords on a compact-only topic)."""


class GroupError(StorageError):
    """Base of the errors of groups. Raised itself if a group's coordinator does not serve, with the reason."""


class UnknownGroupError(GroupError):
    """No such group."""


class InvalidGroupError(GroupError):
    """An invalid group ID."""


class GroupExistsError(GroupError):
    """The group to be created exists, or its name belongs to a group of another kind."""


class GroupNotEmptyError(GroupError):
    """The group has members: only they can move its positions, and it cannot be deleted."""


class GroupFullError(GroupError):
    """The group has as many members as `group.max.size` allows."""


class IncompatibleMemberError(GroupError):
    """A member that has no assignor in common with the group's other members."""


class NotAssignedError(GroupError):
    """A position in a partition that the member does not hold, or no longer; its holder continues from the last one."""


class InvalidPositionError(GroupError):
    """A position that cannot be committed: it is not an offset, or its metadata is too long."""


class NoPositionError(GroupError):
    """The group has no position in a partition, or one out of range, and `auto.offset.reset=none`."""


class SessionClosedError(GroupError):
    """The session of a share group was closed, or its group deleted."""


class RecordNotHeldError(GroupError):
    """The session of a share group does not hold the record, or no longer (Kafka: INVALID_RECORD_STATE)."""


class GroupsUnsupportedError(GroupError):
    """The engine, or the cluster, has no groups of this kind."""


class CorruptionError(StorageError):
    """Bytes on disk that differ from what was written: always with the file, the position and the cause."""

    def __init__(self, file: Path | str, position: int, cause: str) -> None:
        super().__init__(f"{file}: position {position}: {cause}")
        self.file = Path(file)
        self.position = position
        self.cause = cause


class NotAPlainFileError(CorruptionError):
    """Something other than a plain file is in the place of a data directory's file; it is neither read nor written."""

    def __init__(self, file: Path | str, kind: str) -> None:
        super().__init__(file, 0, f"a {kind} where a plain file belongs; put the file back, or remove it")


class OversizeError(CorruptionError):
    """A batch on disk that exceeds the bounds of decoding: it can be copied as it is, but its records are not read."""


class SearchTooLongError(StorageError):
    """A search reached its bound before its end."""


class CorruptBatchError(StorageError):
    """A fault that the codec found in a buffer: `position` counts from the buffer's start. The log adds the file."""

    def __init__(self, position: int, cause: str) -> None:
        super().__init__(f"position {position}: {cause}")
        self.position = position
        self.cause = cause

    def in_file(self, file: Path | str, position: int) -> CorruptionError:
        """Return the same fault with its file, and the batch's position there."""
        return CorruptionError(file, position, self.cause)


class OversizeBatchError(CorruptBatchError):
    """A batch that may be valid, but exceeds the bounds of decoding (`storage.codec.compression.bounds`)."""

    def in_file(self, file: Path | str, position: int) -> CorruptionError:
        return OversizeError(file, position, self.cause)


class TornBatchError(CorruptBatchError):
    """A batch that ends before its declared size: the sign of an interrupted write, not of corruption."""


class PartitionOfflineError(StorageError):
    """The partition accepts no more requests until it is reopened (failed fsync, failed directory)."""


class PartitionGoneError(PartitionOfflineError):
    """The log never accepts requests again: its topic was deleted, or another log serves in its place."""


class DirectoryLockedError(StorageError):
    """Another process owns the data directory."""

    def __init__(self, directory: Path, holder_pid: int | None) -> None:
        self.holder = f"process {holder_pid}" if holder_pid else "another process"
        super().__init__(
            f"{directory}: in use by {self.holder}; stop it first, or read beside it: topicfs mount --read-only"
        )
        self.directory = directory
        self.holder_pid = holder_pid


class MissingReplicasError(StorageError):
    """A replica directory that may have later records is missing, and nobody agreed to continue without it."""


class RecordsLostError(PolicyViolationError):
    """The replica to be removed has records that no other replica has."""


class ForkedReplicasError(StorageError):
    """Two directories of a set of replicas were written to independently: each may have records that the other lacks."""


class NotALogDirectoryError(StorageError):
    """A directory that contains something other than Kafka's own entries."""


class DuplicatePartitionError(StorageError):
    """The same partition is in two data directories, and it is unknown which one counts."""


class ReadOnlyError(StorageError):
    """A change was requested of an engine opened read-only."""


class ClusterError(StorageError):
    """The Kafka cluster cannot be reached, or refuses the request."""


class NoAnswerError(ClusterError, PartitionOfflineError):
    """No broker answered in time, or none leads the partition: another attempt may succeed."""


class NotAuthorizedError(ClusterError):
    """The Kafka cluster knows the user, but does not allow the operation."""


class Finding(NamedTuple):
    """Something invalid in a file."""

    file: Path
    position: Position | None
    """Byte in the file; None: the whole file."""
    cause: str

    @classmethod
    def of(cls, error: CorruptionError) -> Finding:
        """Return an error that a reader raised, as a finding."""
        return cls(error.file, Position(error.position), error.cause)
