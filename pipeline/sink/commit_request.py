"""The driver's part of a write: request the commit, and wait until the records are appended.

The owner of the data directory appends. If the directory has no owner, this process owns it for the commit. A daemon
claims the request, and this process waits until the daemon has appended the write, however long that takes. If no
owner claims the request in time (a broker never does), this process withdraws the request, so that its records cannot
arrive after the job has failed. A single rename decides between a claim and a withdrawal.

A named write that is already committed is not appended again. After a crash, Spark repeats the last micro-batch with
the same rows; the repeated write is skipped with a warning. If the rows differ, the checkpoint was restored or
copied, and it is unknown which of the rows are in the topic, so an error is raised. An application (`txnAppId`) may
repeat any of its earlier versions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.tasks.output import MESSAGE_PREFIX
from topicfs.replication import check_no_mirror, open_directories
from topicfs.storage.disk.lock import find_holder
from topicfs.storage.disk.names import WriteId
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import DirectoryLockedError, StorageError
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.area import StagingArea, WriteState
from topicfs.storage.staging.bell import ring
from topicfs.storage.staging.manifest import Content, Placement
from topicfs.storage.staging.record import CommitRecord
from topicfs.storage.staging.staged_file import StagedFile

FIRST_CHECK_PAUSE_SECONDS = 0.02
LONGEST_CHECK_PAUSE_SECONDS = 0.5
"""Longest pause between two checks whether the owner has finished or ended. The owner's bell ends a pause early."""

_LOGGER = logging.getLogger(__name__)


class CommittedBeforeError(PipelineError):
    """A write with this name is committed, or may be committed, with other rows."""


class CommitTimeoutError(PipelineError):
    """No owner claimed a write in time, or no running process can complete it."""


def staging_area(directories: Sequence[Path]) -> StagingArea:
    """Return the staging area of directories that are served together. Raises StorageError if one is a mirror."""
    check_no_mirror(directories)
    files = NativeFileSystem()
    record = CommitRecord(files, lambda: directories)
    return StagingArea(min(directory.resolve() for directory in directories), files, record)


def stage(
    directories: Sequence[Path],
    write: WriteId,
    task: int,
    batches: Iterable[tuple[TopicPartition, bytearray]],
) -> StagedFile | None:
    """Stage a task's batches in a new file, flushed to disk; None without batches. Raises StorageError, OSError."""
    area, writer = staging_area(directories), None
    try:
        for partition, batch in batches:
            writer = writer or area.stage(write, task)
            writer.append(partition, batch)
        return None if writer is None else writer.finish()
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise


class CommitRequest:
    """A request that the owner of the data directories commits one write."""

    def __init__(
        self,
        directories: Sequence[Path],
        write: WriteId,
        staged: Sequence[StagedFile],
        placement: Placement | None = None,
        *,
        content: Content | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        """Prepare the request for the tasks' files `staged`, in the order of appending.

        `placement` says where the batches go, unless they go to the ends of the logs. `content` is the content of the
        files, if the write has a name.
        """
        self.left_out: Sequence[Path] = ()
        """Lost replica directories, which the commit leaves out."""
        self.is_version = False
        """True for a version of an application; False for a micro-batch of a query."""
        self.must_have_same_rows = True
        """True if an error is raised when the write was already committed with other rows."""
        self._directories = tuple(directories)
        self._area = staging_area(directories)
        self._write = write
        self._staged = tuple(staged)
        self._placement = placement
        self._content = content
        self._sleep = sleep or self._ring
        self._owner = "nobody"
        self._owner_appends = False
        """True if another process owns the directory and appends staged writes. A broker appends none."""
        self._is_ours = False
        """True if the write was submitted by this request, and not by a concurrent one."""
        self._warnings: tuple[str, ...] = ()

    def commit(self, timeout_seconds: float) -> None:
        """Wait until every record is in its log and on disk (blocking).

        `timeout_seconds` limits the time until the owner claims the request. Raises WriteRefusedError,
        CommitTimeoutError, CommittedBeforeError and errors of opening the directory.
        """
        if not self._staged and self._placement is None and not self._must_be_noted():
            return
        self._check_known()
        self._is_ours = self._submit()
        try:
            self._wait(timeout_seconds)
            self._compare()
        except BaseException:
            # Withdraw also after an interrupt, so that no owner can begin to append the write later.
            with suppress(OSError):
                self._area.withdraw(self._write)
            self.abort()
            raise
        self._area.discard(one.name for one in self._staged)

    def abort(self) -> None:
        """Remove the staged files, unless the write is committed or may still be committed."""
        with suppress(OSError, StorageError):
            if self._area.state(self._write) not in (WriteState.REQUESTED, WriteState.CLAIMED):
                self._area.discard(one.name for one in self._staged)

    def _wait(self, timeout_seconds: float) -> None:
        deadline, pause = time.monotonic() + timeout_seconds, FIRST_CHECK_PAUSE_SECONDS
        while not self._is_done():
            self._submit_again()
            self._commit_as_owner()
            if self._is_done():
                return
            if time.monotonic() >= deadline:
                self._give_up_unless_claimed(timeout_seconds)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_CHECK_PAUSE_SECONDS)

    def _give_up_unless_claimed(self, timeout_seconds: float) -> None:
        """Withdraw the request and raise CommitTimeoutError. If a live owner has claimed the request first, return."""
        where, cause = self._where(), f" ({self._warnings[-1]})" if self._warnings else ""
        if self._area.withdraw(self._write):
            raise CommitTimeoutError(
                f"{where}: owned by {self._owner}, which did not claim the write within {timeout_seconds:g} s{cause}; nothing was "
                "written. A topicfs mount claims writes; a broker does not: write through the broker, or stop it"
            )
        if self._is_done() or self._owner_appends:
            return
        raise CommitTimeoutError(
            f"{where}: write {self._write} has begun, but no process can complete it now: the directory is owned by "
            f"{self._owner}{cause}; part of the write may be visible, and the next owner completes it"
        )

    def _ring(self, seconds: float) -> None:
        """Wake the owner, and wait up to `seconds` until the write is done."""
        end = time.monotonic() + seconds
        ring(self._area.directory, seconds)
        if not self._is_done():  # If the owner failed, it is not woken again immediately.
            time.sleep(max(0.0, end - time.monotonic()))

    def _is_done(self) -> bool:
        state = self._area.state(self._write)
        if state is WriteState.REFUSED:
            with suppress(FileNotFoundError):  # Another job with this name has already taken the refusal.
                raise self._area.take_refusal(self._write)
        return state is WriteState.COMMITTED or (state is WriteState.UNKNOWN and self._write.batch is None)

    def _submit_again(self) -> None:
        """Submit a micro-batch again if an earlier driver has withdrawn it.

        After a driver was killed, its Python processes may live on and withdraw a write. A write outside of streams
        has only one driver. So if the state of such a write is unknown, the write counts as done.
        """
        if self._write.batch is not None and self._area.state(self._write) is WriteState.UNKNOWN:
            self._is_ours = self._submit()

    def _submit(self) -> bool:
        return self._area.submit(self._write, self._staged, self._placement, self._content)

    def _must_be_noted(self) -> bool:
        """Return whether a write must be recorded even if it has no rows.

        Without the record, nobody would know the write's query or version.
        """
        return self._write.batch is not None and (
            self.is_version or self._area.committed(self._write) is None
        )

    def _check_known(self) -> None:
        """Raise CommittedBeforeError if the query is not new and the record of its writes may have been dropped."""
        if not self._write.batch or self.is_version or self._area.committed(self._write) is not None:
            return
        if self._area.record.forgot(self._write):
            self.abort()
            raise CommittedBeforeError(
                f"{self._where()}: {self._name} comes from a query that has committed nothing here for a year, or ever. "
                f"Whether it was committed is no longer recorded, so nothing was written; {self._remedy}"
            )

    def _compare(self) -> None:
        """Raise CommittedBeforeError if the write was committed with other rows; warn if it had the same rows."""
        committed = self._area.committed(self._write)
        is_last = committed is not None and committed.batch == self._write.batch
        if committed is None or (self._is_ours and not is_last):
            return
        here, brought = f"{self._where()}: {self._name}", _count(self._content)
        if not is_last and not self.is_version:
            raise CommittedBeforeError(
                f"{here} is repeated with {brought}, but micro-batch {committed.batch} is committed: the checkpoint was "
                f"restored or copied. Which of these are in the topic is unknown, so none was written; {self._remedy}"
            )
        known = is_last and None not in (self._content, committed.content)
        if known and self._content != committed.content:
            if self.must_have_same_rows:
                raise CommittedBeforeError(
                    f"{here} is repeated with other rows ({brought}; committed: {_count(committed.content)}): the "
                    "checkpoint was restored or copied, or the query gives other rows each time it runs (then "
                    f"failOnOtherRows=false skips them). None of them was written; {self._remedy}"
                )
            brought += ", which differ from those committed"
        elif self._is_ours:
            return
        _LOGGER.warning("%s%s was committed before: skipped %s", MESSAGE_PREFIX, here, brought)

    @property
    def _name(self) -> str:
        kind = ("version", "application") if self.is_version else ("micro-batch", "query")
        return f"{kind[0]} {self._write.batch} of {kind[1]} {self._write.query}"

    @property
    def _remedy(self) -> str:
        if self.is_version:
            return "write them under another txnAppId"
        return "give the query a new checkpoint, and say where it begins"

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


def _count(content: Content | None) -> str:
    return "records that were not counted" if content is None else f"{content.records} records"
