"""The table that maps errors of the engine to errno values, and the reports that users see."""

from __future__ import annotations

import ast
import builtins
import errno
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from topicfs.fusefs.allowance import RequestTooLargeError
from topicfs.fusefs.errors import REFUSALS, FileError, Refusal, errno_of, file_error
from topicfs.fusefs.forms import FormError
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.selectors import SelectorError
from topicfs.fusefs.views.records import BatchCutError
from topicfs.schemas.schema import MissingLibraryError
from topicfs.storage import errors
from topicfs.storage.model import Timestamp

RAISED = [
    (errors.InvalidNameError("x"), errno.EINVAL),
    (errors.InvalidConfigError("x"), errno.EINVAL),
    (errors.InvalidRecordError("x"), errno.EINVAL),
    (errors.InvalidTimestampError("x"), errno.EINVAL),
    (errors.PolicyViolationError("x"), errno.EINVAL),
    (errors.RecordsLostError("x"), errno.EINVAL),
    (FormError(1, "x"), errno.EINVAL),
    (errors.TopicExistsError("x"), errno.EEXIST),
    (errors.TopicNotEmptyError("x", 3), errno.ENOTEMPTY),
    (errors.RecordTooLargeError("x"), errno.EMSGSIZE),
    (errors.UnknownTopicError("x"), errno.ENOENT),
    (errors.OffsetOutOfRangeError(5, 0, 3), errno.ENOENT),
    (SelectorError("x"), errno.ENOENT),
    (BatchCutError("x"), errno.ENOENT),
    (errors.NotEnoughReplicasError("x"), errno.EAGAIN),
    (errors.NotEnoughReplicasAfterAppendError("x"), errno.EIO),
    (errors.NotLeaderError("x"), errno.EAGAIN),
    (errors.PartlyAppendedError("x", appended=1, batches=2), errno.EIO),
    (errors.ProducerFencedError("x"), errno.ESTALE),
    (errors.OutOfOrderSequenceError("x"), errno.EILSEQ),
    (errors.InvalidTransactionStateError("x"), errno.EINVAL),
    (errors.SegmentDeletedError("x"), errno.ESTALE),
    (RequestTooLargeError("x"), errno.EFBIG),
    (errors.OversizeError("file", 7, "x"), errno.EFBIG),
    (errors.OversizeBatchError(7, "x"), errno.EFBIG),
    (errors.CorruptionError("file", 7, "x"), errno.EIO),
    (errors.NotAPlainFileError("file", "FIFO"), errno.EIO),
    (errors.CorruptBatchError(7, "x"), errno.EIO),
    (errors.TornBatchError(7, "x"), errno.EIO),
    (errors.PartitionOfflineError("x"), errno.EIO),
    (errors.ClusterError("x"), errno.EIO),
    (errors.NoAnswerError("x"), errno.EIO),
    (errors.NotAuthorizedError("x"), errno.EACCES),
    (errors.PartitionGoneError("x"), errno.ESTALE),
    (errors.UnknownGroupError("x"), errno.ENOENT),
    (errors.InvalidGroupError("x"), errno.EINVAL),
    (errors.GroupExistsError("x"), errno.EEXIST),
    (errors.GroupNotEmptyError("x"), errno.EBUSY),
    (errors.GroupFullError("x"), errno.EMFILE),
    (errors.IncompatibleMemberError("x"), errno.EINVAL),
    (errors.NotAssignedError("x"), errno.ESTALE),
    (errors.InvalidPositionError("x"), errno.EINVAL),
    (errors.NoPositionError("x"), errno.ENODATA),
    (errors.SessionClosedError("x"), errno.ESTALE),
    (errors.RecordNotHeldError("x"), errno.ESTALE),
    (errors.GroupsUnsupportedError("x"), errno.EOPNOTSUPP),
    (MissingLibraryError("fastavro"), errno.EOPNOTSUPP),
    (errors.GroupError("x"), errno.EIO),
    (errors.ReadOnlyError("x"), errno.EROFS),
    (errors.StorageError("x"), errno.EIO),
    (OSError(errno.ENOSPC, "x"), errno.ENOSPC),
    (OSError(errno.EDQUOT, "x"), errno.EDQUOT),
    (OSError("without a number"), errno.EIO),
    (FileError(Refusal.NOT_AUTHORIZED), errno.EACCES),
    (KeyError("nobody expected this"), errno.EIO),
]


@pytest.mark.parametrize(("error", "number"), RAISED, ids=[type(error).__name__ for error, _ in RAISED])
def test_each_error_has_its_errno(error: Exception, number: int):
    """The type of an error determines the errno; the text of the error does not matter."""
    assert errno.errorcode[errno_of(error)] == errno.errorcode[number]
    assert file_error(error).number == number


def test_every_error_of_the_engine_is_in_the_table():
    """Each StorageError has a row in REFUSALS, or never reaches a program that uses a mount.

    An error without a row would become EIO. Most errors that never reach a program occur while a directory is opened,
    before a mount exists. After SearchTooLongError the mount repeats the search in a thread.
    """
    never_told = {
        "DirectoryLockedError",
        "NotALogDirectoryError",
        "DuplicatePartitionError",
        "ForkedReplicasError",
        "MissingReplicasError",
        "SearchTooLongError",
    }
    named = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.StorageError)
    }

    assert {kind.__name__ for kind in named if kind not in REFUSALS} <= never_told


SOURCES = sorted(Path(__file__).parents[2].joinpath("fusefs").rglob("*.py"))


def calls_with_an_errno(source: Path) -> Iterator[str]:
    """Yield the calls in a source file that pass an errno constant, except those that create an OSError."""
    for call in ast.walk(ast.parse(source.read_text())):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) == "os.strerror":
            continue
        kind = getattr(builtins, ast.unparse(call.func), None)
        passed = [ast.unparse(node) for argument in call.args for node in ast.walk(argument)]
        is_os_error = isinstance(kind, type) and issubclass(kind, OSError)
        if not is_os_error and any(text.startswith("errno.E") for text in passed):
            yield f"{source.name}: {ast.unparse(call)}"


def test_the_table_alone_chooses_the_errno_of_a_refusal():
    """No other module of fusefs passes an errno constant to a call; comparing with a constant is allowed."""
    assert len(SOURCES) > 100
    assert [] == [
        call for source in SOURCES if source.name != "errors.py" for call in calls_with_an_errno(source)
    ]


def test_each_refusal_has_a_reason_of_its_own():
    """No two rows of the table have the same reason, even if they have the same errno."""
    assert len(Refusal) == len({refusal.reason for refusal in Refusal})


def test_every_row_of_the_table_is_tried():
    """Each row of the table has an example in RAISED that names the expected errno."""
    assert set(REFUSALS) <= {type(error) for error, _ in RAISED}


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (errors.InvalidConfigError("x"), True),
        (errors.RecordTooLargeError("x"), True),
        (errors.OutOfOrderSequenceError("x"), True),
        (errors.CorruptionError("file", 7, "x"), True),
        (OSError(errno.ENOSPC, "x"), True),
        (errors.TopicExistsError("x"), False),
        (FileError(Refusal.NOT_FOUND), False),
        (FileError(Refusal.NOT_FOUND, "offsets 0 to 3 exist", reported=True), True),
    ],
)
def test_which_errors_are_reported(error: Exception, reported: bool):
    """EINVAL, EMSGSIZE, EILSEQ, EIO and a full disk are always reported, other errors only if `reported` is set."""
    assert file_error(error).reported is reported


def test_the_reason_goes_along():
    """The reason of a damaged batch includes its file and position."""
    assert (
        "0.log: position 78: checksum" == file_error(errors.CorruptionError("0.log", 78, "checksum")).reason
    )


def test_reports_are_bounded_and_dated():
    """Only the newest `kept` errors and warnings are kept as reports, each on one line with its time."""
    reports = Reports(lambda: Timestamp(1_700_000_000_123), kept=2)
    reports.error("a/0/log", "first")
    reports.warning("a/0/log", "of two\nlines")
    reports.error("a/0/log", "third")

    assert (
        r"2023-11-14T22:13:20.123Z warning a/0/log: of two\nlines",
        "2023-11-14T22:13:20.123Z error a/0/log: third",
    ) == reports.lines()


def test_asking_again_and_again_says_one_thing_once(caplog: pytest.LogCaptureFixture):
    """If an error repeats, it is logged once, and reported on one line with a count and the latest time."""
    times = iter([1_000, 2_000])
    reports = Reports(lambda: Timestamp(next(times)))
    reports.error("a/0/7", "no offset 7")
    reports.error("a/0/7", "no offset 7")

    assert ("1970-01-01T00:00:02.000Z error a/0/7: no offset 7 (2 times)",) == reports.lines()
    assert 1 == len(caplog.records)
