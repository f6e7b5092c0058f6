"""The one table from the engine's errors to the errno that a program at the mount sees."""

from __future__ import annotations

import errno
import os

from topicfs.fusefs.allowance import RequestTooLargeError
from topicfs.fusefs.forms import FormError
from topicfs.fusefs.selectors import SelectorError
from topicfs.fusefs.views.records import BatchCutError
from topicfs.schemas.schema import MissingLibraryError
from topicfs.storage import errors as storage

ERRNOS: dict[type[Exception], int] = {
    storage.InvalidNameError: errno.EINVAL,
    storage.InvalidConfigError: errno.EINVAL,
    storage.InvalidRecordError: errno.EINVAL,
    storage.InvalidTimestampError: errno.EINVAL,
    storage.PolicyViolationError: errno.EINVAL,
    storage.RecordsLostError: errno.EINVAL,
    storage.InvalidTransactionStateError: errno.EINVAL,
    FormError: errno.EINVAL,
    SelectorError: errno.ENOENT,
    BatchCutError: errno.ENOENT,
    storage.TopicExistsError: errno.EEXIST,
    storage.TopicNotEmptyError: errno.ENOTEMPTY,
    storage.NotAuthorizedError: errno.EACCES,
    storage.RecordTooLargeError: errno.EMSGSIZE,
    storage.UnknownTopicError: errno.ENOENT,
    storage.OffsetOutOfRangeError: errno.ENOENT,
    storage.NotEnoughReplicasError: errno.EAGAIN,
    storage.NotEnoughReplicasAfterAppendError: errno.EIO,
    storage.NotLeaderError: errno.EAGAIN,
    storage.PartlyAppendedError: errno.EIO,
    storage.ProducerFencedError: errno.ESTALE,
    storage.SegmentDeletedError: errno.ESTALE,
    storage.OutOfOrderSequenceError: errno.EILSEQ,
    RequestTooLargeError: errno.EFBIG,
    storage.OversizeError: errno.EFBIG,
    storage.OversizeBatchError: errno.EFBIG,
    storage.NotAPlainFileError: errno.EIO,
    storage.CorruptionError: errno.EIO,
    storage.CorruptBatchError: errno.EIO,
    storage.TornBatchError: errno.EIO,
    storage.PartitionGoneError: errno.ESTALE,
    storage.PartitionOfflineError: errno.EIO,
    storage.NoAnswerError: errno.EIO,
    storage.ClusterError: errno.EIO,
    storage.UnknownGroupError: errno.ENOENT,
    storage.InvalidGroupError: errno.EINVAL,
    storage.GroupExistsError: errno.EEXIST,
    storage.GroupNotEmptyError: errno.EBUSY,
    storage.GroupFullError: errno.EMFILE,
    storage.IncompatibleMemberError: errno.EINVAL,
    storage.NotAssignedError: errno.ESTALE,
    storage.InvalidPositionError: errno.EINVAL,
    storage.NoPositionError: errno.ENODATA,
    storage.SessionClosedError: errno.ESTALE,
    storage.RecordNotHeldError: errno.ESTALE,
    storage.GroupsUnsupportedError: errno.EOPNOTSUPP,
    MissingLibraryError: errno.EOPNOTSUPP,
    storage.GroupError: errno.EIO,
    storage.ReadOnlyError: errno.EROFS,
    storage.StorageError: errno.EIO,
}
"""The table of fusefs/SEMANTICS.md#errors. A type that is not listed counts as its nearest listed ancestor; an OSError keeps its own."""

REPORTED = frozenset({errno.EINVAL, errno.EMSGSIZE, errno.EIO, errno.EFBIG, errno.EILSEQ})
"""Errors that always leave a line of reason for people: the program that got one shows only the errno's name."""


class FileError(Exception):
    """An operation on a file failed: the errno for the program, and the reason for people.

    The only error that leaves the filesystem layer. `reported` asks for a line in `@status` and the daemon's log.
    """

    def __init__(self, number: int, reason: str = "", *, reported: bool | None = None) -> None:
        super().__init__(f"{os.strerror(number)}: {reason}" if reason else os.strerror(number))
        self.number = number
        self.reason = reason
        self.reported = number in REPORTED if reported is None else reported


class InternalTopicError(FileError):
    """A change of one of Kafka's own topics."""

    def __init__(self, topic: str) -> None:
        super().__init__(errno.EPERM, f"{topic} is one of Kafka's own topics", reported=True)


def errno_of(error: Exception) -> int:
    """The errno of any error; what the table does not know is EIO."""
    if isinstance(error, FileError):
        return error.number
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    return next((ERRNOS[kind] for kind in type(error).__mro__ if kind in ERRNOS), errno.EIO)


def file_error(error: Exception) -> FileError:
    """Translate an error of the engine, of the disk or of a form; a FileError stays what it is."""
    if isinstance(error, FileError):
        return error
    number = errno_of(error)
    reason = error.strerror or "" if isinstance(error, OSError) else str(error)
    told = number == errno.ENOSPC or isinstance(
        error,
        storage.ProducerFencedError
        | storage.NotEnoughReplicasError
        | storage.NotLeaderError
        | storage.NotAuthorizedError
        | storage.GroupsUnsupportedError
        | MissingLibraryError,
    )
    return FileError(number, reason, reported=True if told else None)
