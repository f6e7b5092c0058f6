"""The table of errors: why the mount refuses a request, and the errno that the program gets."""

from __future__ import annotations

import errno
import os
from enum import Enum

from topicfs.fusefs.allowance import RequestTooLargeError
from topicfs.fusefs.forms import FormError
from topicfs.fusefs.selectors import SelectorError
from topicfs.fusefs.views.records import BatchCutError
from topicfs.schemas.schema import MissingLibraryError
from topicfs.storage import errors as storage


class Refusal(Enum):
    """Reasons for a failed request, with errno and text. fusefs/SEMANTICS.md#errors describes the table for users."""

    NOT_FOUND = errno.ENOENT, "no such topic, group, file or record, or the name selects nothing"
    EXISTS = errno.EEXIST, "the name already exists"
    NOT_EMPTY = errno.ENOTEMPTY, "the topic has records, or the group has positions"
    IS_A_DIRECTORY = errno.EISDIR, "a directory where a file is needed"
    NOT_A_DIRECTORY = errno.ENOTDIR, "a file where a directory is needed"
    NAME_TOO_LONG = errno.ENAMETOOLONG, "the name is too long (255 bytes)"
    INVALID = (
        errno.EINVAL,
        "an invalid name, setting, position, line or batch, or a wrong way to open the file",
    )

    NOT_PERMITTED = errno.EPERM, "the mount never makes this change"
    READ_ONLY = errno.EROFS, "the mount is read-only"
    NOT_AUTHORIZED = errno.EACCES, "the cluster does not let its user do this"
    NOT_OPEN = errno.EBADF, "the file is not open, or not for this access"
    UNSUPPORTED = errno.EOPNOTSUPP, "the engine does not have this, or its library is not installed"
    FIXED_ATTRIBUTE = errno.EOPNOTSUPP, "extended attributes can only be read"
    NO_ATTRIBUTE = errno.ENODATA, "no such extended attribute"
    ATTRIBUTE_TOO_LARGE = errno.E2BIG, "the extended attribute is larger than the kernel takes"

    RECORD_TOO_LARGE = errno.EMSGSIZE, "the record is larger than the topic allows"
    REQUEST_TOO_LARGE = errno.EFBIG, "one request would decode more than its bound"
    OUT_OF_SEQUENCE = errno.EILSEQ, "the batch does not follow its producer's last one"
    FENCED = errno.ESTALE, "a newer producer has the same transactional id"
    NO_REPLICAS = errno.EAGAIN, "too few replicas are in sync, or there is no leader: nothing is appended"

    GONE = errno.ESTALE, "the content of the open file was deleted, or now belongs to another reader"
    READ_ONCE = errno.ESPIPE, "the file can be read only once: earlier records are not available"
    NOTHING_NEW = errno.EAGAIN, "O_NONBLOCK, and no new record"
    NO_POSITION = errno.ENODATA, "the group has no position, and auto.offset.reset=none"
    BUSY = errno.EBUSY, "the group has members"
    GROUP_FULL = errno.EMFILE, "the group has as many members as group.max.size allows"
    TOO_MANY_READS = errno.EMFILE, "the mount, or this user, has the maximum number of waiting reads"
    INTERRUPTED = errno.EINTR, "the waiting program is about to end"
    UNMOUNTED = errno.ENOTCONN, "the mount ended while the program waited"

    FAILED = errno.EIO, "damaged data, a failed disk, no answer from the cluster, or a defect of topicfs"

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self.reason = reason


REFUSALS: dict[type[Exception], Refusal] = {
    storage.InvalidNameError: Refusal.INVALID,
    storage.InvalidConfigError: Refusal.INVALID,
    storage.InvalidRecordError: Refusal.INVALID,
    storage.InvalidTimestampError: Refusal.INVALID,
    storage.PolicyViolationError: Refusal.INVALID,
    storage.RecordsLostError: Refusal.INVALID,
    storage.InvalidTransactionStateError: Refusal.INVALID,
    FormError: Refusal.INVALID,
    SelectorError: Refusal.NOT_FOUND,
    BatchCutError: Refusal.NOT_FOUND,
    storage.TopicExistsError: Refusal.EXISTS,
    storage.TopicNotEmptyError: Refusal.NOT_EMPTY,
    storage.NotAuthorizedError: Refusal.NOT_AUTHORIZED,
    storage.RecordTooLargeError: Refusal.RECORD_TOO_LARGE,
    storage.UnknownTopicError: Refusal.NOT_FOUND,
    storage.OffsetOutOfRangeError: Refusal.NOT_FOUND,
    storage.NotEnoughReplicasError: Refusal.NO_REPLICAS,
    storage.NotEnoughReplicasAfterAppendError: Refusal.FAILED,
    storage.NotLeaderError: Refusal.NO_REPLICAS,
    storage.PartlyAppendedError: Refusal.FAILED,
    storage.ProducerFencedError: Refusal.FENCED,
    storage.SegmentDeletedError: Refusal.GONE,
    storage.OutOfOrderSequenceError: Refusal.OUT_OF_SEQUENCE,
    RequestTooLargeError: Refusal.REQUEST_TOO_LARGE,
    storage.OversizeError: Refusal.REQUEST_TOO_LARGE,
    storage.OversizeBatchError: Refusal.REQUEST_TOO_LARGE,
    storage.NotAPlainFileError: Refusal.FAILED,
    storage.CorruptionError: Refusal.FAILED,
    storage.CorruptBatchError: Refusal.FAILED,
    storage.TornBatchError: Refusal.FAILED,
    storage.PartitionGoneError: Refusal.GONE,
    storage.PartitionOfflineError: Refusal.FAILED,
    storage.NoAnswerError: Refusal.FAILED,
    storage.ClusterError: Refusal.FAILED,
    storage.UnknownGroupError: Refusal.NOT_FOUND,
    storage.InvalidGroupError: Refusal.INVALID,
    storage.GroupExistsError: Refusal.EXISTS,
    storage.GroupNotEmptyError: Refusal.BUSY,
    storage.GroupFullError: Refusal.GROUP_FULL,
    storage.IncompatibleMemberError: Refusal.INVALID,
    storage.NotAssignedError: Refusal.GONE,
    storage.InvalidPositionError: Refusal.INVALID,
    storage.NoPositionError: Refusal.NO_POSITION,
    storage.SessionClosedError: Refusal.GONE,
    storage.RecordNotHeldError: Refusal.GONE,
    storage.GroupsUnsupportedError: Refusal.UNSUPPORTED,
    MissingLibraryError: Refusal.UNSUPPORTED,
    storage.GroupError: Refusal.FAILED,
    storage.ReadOnlyError: Refusal.READ_ONLY,
    storage.StorageError: Refusal.FAILED,
}
"""Errors of lower layers. For an unlisted type, its nearest listed ancestor applies; an OSError keeps its own errno."""

REPORTED = frozenset({errno.EINVAL, errno.EMSGSIZE, errno.EIO, errno.EFBIG, errno.EILSEQ, errno.ENOSPC})
REPORTED_REFUSALS = frozenset(
    {Refusal.FENCED, Refusal.NO_REPLICAS, Refusal.NOT_AUTHORIZED, Refusal.UNSUPPORTED}
)
"""Refusals whose reason the mount always reports, because the program shows only the text of the errno."""


class FileError(Exception):
    """Failure of a file operation, with the errno for the program and the reason for people.

    The filesystem raises no other error. If `reported`, the reason is also added to `@status` and the daemon's log.
    """

    def __init__(self, cause: Refusal | int, reason: str = "", *, reported: bool | None = None) -> None:
        """`cause` is an entry of the table, or an OSError's errno."""
        self.number = cause.number if isinstance(cause, Refusal) else cause
        super().__init__(f"{os.strerror(self.number)}: {reason}" if reason else os.strerror(self.number))
        self.reason = reason
        if reported is None:
            reported = self.number in REPORTED or cause in REPORTED_REFUSALS
        self.reported = reported


def errno_of(error: Exception) -> int:
    """Return the errno for any error; EIO if the table has no entry for the error."""
    return file_error(error).number


def file_error(error: Exception) -> FileError:
    """Convert an error of the engine, the disk or a form to a FileError; a FileError is returned unchanged."""
    if isinstance(error, FileError):
        return error
    if isinstance(error, OSError):
        return FileError(error.errno or errno.EIO, error.strerror or "")
    known = (REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS)
    return FileError(next(known, Refusal.FAILED), str(error))
