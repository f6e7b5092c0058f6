"""The driver's part of a write: request the commit, and wait until it is appended.

The owner of the data directory appends. If the directory has no owner, this process owns it for that moment. A daemon
claims the request, and this process waits until the daemon has appended the write, however long that takes. If nobody
claims the request in time (a broker never does), this process withdraws it, so that the write cannot arrive after its
job failed. One rename decides between a claim and a withdrawal.

A micro-batch that is committed already is not appended again. After a crash Spark repeats at most the last one, with the
same rows: that is skipped with a warning. Any other repetition comes from a checkpoint that was restored or copied, with
rows that may be in the topic already: that is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.tasks.output import FOR_PEOPLE
from topicfs.storage.disk.lock import find_holder
from topicfs.storage.disk.names import WriteId
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import DirectoryLockedError, StorageError
from topicfs.storage.replicas import check_no_mirror, open_directories
from topicfs.storage.staging.area import StagingArea, WriteState
from topicfs.storage.staging.placement import Placement
from topicfs.storage.staging.record import CommitRecord
from topicfs.storage.staging.staged_file import StagedFile

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
"""Between two checks whether the owner is done, or gone."""

_REMEDY = "give the query a new checkpoint, and say where it begins"
_LOGGER = logging.getLogger(__name__)


class CommittedBeforeError(PipelineError):
    """A micro-batch of this number is committed, with other rows as far as is known."""


class CommitTimeoutError(PipelineError):
    """Nobody claimed a write in time, or nobody who lives can complete it."""


def staging_area(directories: Sequence[Path]) -> StagingArea:
    """Return the staging area of data directories that are served together: the same in whichever order they are named.

    Raises StorageError where a mirror keeps one of them.
    """
    check_no_mirror(directories)
    files = NativeFileSystem()
    record = CommitRecord(files, lambda: directories)
    return StagingArea(min(directory.resolve() for directory in directories), files, record)


class CommitRequest:
    """The request that the owner of the data directories commits one write."""

    def __init__(
        self,
        directories: Sequence[Path],
        write: WriteId,
        staged: Sequence[StagedFile],
        placement: Placement | None = None,
        *,
        records: Mapping[str, int] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare the request; `staged`: the tasks' files, in the order of appending; `placement`: their place, if not at the logs' ends.

        `records`: their number by topic; None: not counted.
        """
        self.left_out: Sequence[Path] = ()
        """Replica directories that are lost, and that a commit does without."""
        self._directories = tuple(directories)
        self._area = staging_area(directories)
        self._write = write
        self._staged = tuple(staged)
        self._placement = placement
        self._records = records
        self._sleep = sleep
        self._owner = "nobody"
        self._owner_appends = False
        """True if another process owns the directory and appends writes; a broker does not."""
        self._is_ours = False
        """True if this request was the one that staged the write."""
        self._warnings: tuple[str, ...] = ()

    def commit(self, timeout_s: float) -> None:
        """Return when every record is in its log and on disk (blocking); the timeout ends with the owner's claim.

        Raises WriteRefusedError, CommitTimeoutError, CommittedBeforeError and what keeps the directory from being opened.
        """
        if not self._staged and self._placement is None:
            return
        self._is_ours = self._area.submit(self._write, self._staged, self._placement)
        try:
            self._wait(timeout_s)
            if not self._is_ours:
                self._skip()
        except BaseException:
            # Whatever ends the wait, an interrupt too: a request that was not begun must not be appended later.
            with suppress(OSError):
                self._area.withdraw(self._write)
            self.abort()
            raise
        self._area.discard(one.name for one in self._staged)

    def abort(self) -> None:
        """Remove what was staged, unless it may have been, or may yet be, committed."""
        with suppress(OSError, StorageError):
            if self._area.state(self._write) not in (WriteState.REQUESTED, WriteState.CLAIMED):
                self._area.discard(one.name for one in self._staged)

    def _wait(self, timeout_s: float) -> None:
        deadline, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
        while not self._is_done():
            self._submit_again()
            self._commit_as_owner()
            if self._is_done():
                return
            if time.monotonic() >= deadline:
                self._give_up_unless_claimed(timeout_s)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _give_up_unless_claimed(self, timeout_s: float) -> None:
        """Withdraw the request (CommitTimeoutError); return if an owner that lives claimed it first."""
        where = self._where()
        if self._area.withdraw(self._write):
            raise CommitTimeoutError(
                f"{where}: owned by {self._owner}, which did not take the write within {timeout_s:g} s; nothing was "
                "written. A topicfs mount takes it; a broker does not: write through the broker, or stop it"
            )
        if self._is_done() or self._owner_appends:
            return
        cause = f" ({self._warnings[-1]})" if self._warnings else ""
        raise CommitTimeoutError(
            f"{where}: write {self._write} was begun, and nobody can complete it now: the directory is owned by "
            f"{self._owner}{cause}; part of the write may be visible, and the next owner completes it"
        )

    def _is_done(self) -> bool:
        state = self._area.state(self._write)
        if state is WriteState.REFUSED:
            raise self._area.take_refusal(self._write)
        return state is WriteState.COMMITTED or (state is WriteState.UNKNOWN and self._write.batch is None)

    def _submit_again(self) -> None:
        """Request again where an earlier driver, killed while its Python processes live on, withdrew the same micro-batch.

        A write that is not of a stream has one driver: if its state is unknown, it is done.
        """
        if self._write.batch is not None and self._area.state(self._write) is WriteState.UNKNOWN:
            self._is_ours = self._area.submit(self._write, self._staged, self._placement)

    def _skip(self) -> None:
        """Warn that another write of this name was committed; CommittedBeforeError where that had other rows."""
        committed = self._area.committed(self._write)
        if committed is None:
            return
        write, brought = self._write, _counts(self._records)
        if committed.batch != write.batch:
            raise CommittedBeforeError(
                f"{self._where()}: micro-batch {write.batch} of query {write.query} comes again with {brought}, but its "
                f"micro-batch {committed.batch} is committed: the checkpoint was put back, or copied. Which of them are in "
                f"the topic already cannot be known, so none was written; {_REMEDY}"
            )
        if None not in (self._records, committed.records) and self._records != committed.records:
            raise CommittedBeforeError(
                f"{self._where()}: micro-batch {write.batch} of query {write.query} comes again with other rows: {brought}, "
                f"and was committed with {_counts(committed.records)}: the checkpoint was put back, or copied. None of them "
                f"was written; {_REMEDY}"
            )
        _LOGGER.warning(
            "%s%s: micro-batch %d of query %s was committed before a crash: passed over %s that came again",
            FOR_PEOPLE,
            self._where(),
            write.batch,
            write.query,
            brought,
        )

    def _where(self) -> str:
        return ",".join(map(str, self._directories))

    def _commit_as_owner(self) -> None:
        try:
            engine = open_directories(self._directories, left_out=self.left_out)
        except DirectoryLockedError as error:
            self._owner = f"process {error.holder_pid}" if error.holder_pid else "another process"
            holder = find_holder(error.directory)
            self._owner_appends = holder is None or holder.is_this_engine
            return
        try:
            self._owner, self._owner_appends = "this process", False
            engine.commit_staged_writes()
            self._warnings = tuple(line for line in engine.warnings if str(self._write) in line)
        finally:
            engine.close()


def _counts(records: Mapping[str, int] | None) -> str:
    if records is None:
        return "records that were not counted"
    return ", ".join(f"{count} records for {topic}" for topic, count in sorted(records.items()))
