"""Files that show a view: a partition's whole log in each form, and ranges of the log.

When records are removed at the front of a view, the name gets a new node, because byte positions must not shift in an
open file. stat shows the same inode number for the old and the new node, so that `tail -F` keeps following. Opening
an outdated node fails with ESTALE, and the kernel then looks the name up again.

Growing files bypass the page cache. A cached read trusts the size that the kernel holds, and each `>` sets that size
to 0 for a moment (O_TRUNC), so readers would see an early end of file. A large block size makes programs read in
large pieces, so that bypassing the cache costs nothing. A closed range never changes, and is cached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from topicfs.fusefs.appending.flags import Access, check_append
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.log_handle import LogHandle, LogHandleOptions, LogNode, UnsizedHandle
from topicfs.fusefs.files.partition_files import PartitionFiles
from topicfs.fusefs.forms import BATCH, DECODED_SUFFIXES, JSON, Form
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes import nodes
from topicfs.fusefs.views.view import View
from topicfs.storage.model import Offset

if TYPE_CHECKING:
    from topicfs.fusefs.appending.framing import Framing
    from topicfs.fusefs.appending.handle import AppendHandle

DECODED_SECONDS = 1.0
"""How long the kernel may cache the name of a decoded log: a new schema may change the log's text."""


class ViewNode(LogNode):
    """A view as a file."""

    __slots__ = ("_files", "_guess", "_opened", "_opened_whole", "_view")

    def __init__(self, parent: nodes.Directory, name: str, files: PartitionFiles, view: View) -> None:
        super().__init__(files.context, parent, name)
        self._files = files
        self._view = view
        self._guess: int | None = None
        """The size that stat returned last, if it was an estimate; otherwise None."""
        self._opened = 0
        self._opened_whole = False
        """True once the file was opened for reading while its exact size, perhaps 0, was known."""

    mode = nodes.READ_MODE

    @property
    def open_ended(self) -> bool:
        """True if the file grows with its partition."""
        return self._view.open_ended

    def end_offset(self) -> Offset:
        """Return the exclusive end offset of an open-ended file now."""
        return self._files.visible_end()

    def attributes(self) -> nodes.Attributes:
        self._files.check_exists()
        self._guess = None
        if self._files.partition.unknown is not None:
            return self._attributes(1, 0)  # tar would not open a file of size 0, and miss the error.
        if not self.measured:
            size = self._view.size if self.context.engine.remote else 0
            self._guess = size or int(not self._opened_to_read)
            return self._attributes(self._guess, 0)
        self._files.note_attributes_cached(self.node_id)
        return self._attributes(self._view.size, nodes.LONG_CACHE_SECONDS)

    def listed_attributes(self) -> nodes.Attributes:
        # Listing measures nothing, but a file that somebody has open must never seem empty.
        return self._attributes(self._view.size if self._opened else 0, 0)

    def _attributes(self, size: int, timeout: float) -> nodes.Attributes:
        mtime_ns = self._files.mtime_ns()
        return nodes.Attributes(self.mode, size, mtime_ns, timeout, self._shown_ino(), nodes.READ_BLOCK)

    def _shown_ino(self) -> int:
        if self._view.open_ended:
            return self._files.shown_inos.setdefault(self.name, self.node_id)
        return self.node_id

    @property
    def measured(self) -> bool:
        if self.context.engine.foreign:
            return self._view.measured
        return self.context.measuring.measured(self._view)

    async def measure(self, pid: int) -> None:
        settings = self.context.settings
        if not self.context.engine.remote or self._at_hand:
            await self._measure(self._open_seconds if self._opened else settings.stat_seconds, pid)
        elif (
            self._opened_to_read and self._partly_known
        ):  # A program that only appends does not need the size.
            self.context.measuring.measure_later(self._view, self._measured_behind, little=True)

    @property
    def _open_seconds(self) -> float:
        """Return how many seconds open(2) may wait for the size; less for decoded forms, which take long to measure."""
        settings = self.context.settings
        decodes = self._view.source.form.suffix in DECODED_SUFFIXES
        return settings.stat_seconds if decodes else settings.open_seconds

    async def _measure(self, seconds: float, pid: int) -> None:
        """Wait at most `seconds` for the exact size.

        If another process owns the data directory, does not wait: the file is then measured in the background.

        The log of a remote engine is measured only if all its data is available locally, or if only recent records
        are missing. Raises FileError (EINTR) if process `pid` is about to end.
        """
        measuring, waiting = self.context.measuring, self.context.waiting
        if self.context.engine.remote and not self._at_hand:
            if self._partly_known:
                await measuring.measure_little(self._view, seconds=self.context.settings.stat_seconds)
            return
        if self.context.engine.foreign or not await measuring.measure(
            self._view, seconds=seconds, ended=lambda: waiting.wants_to_end(pid)
        ):
            measuring.measure_later(self._view, self._measured_behind)
        if waiting.wants_to_end(pid):
            raise FileError(Refusal.INTERRUPTED)

    @property
    def _partly_known(self) -> bool:
        """True if the view was measured before, so that only the records added since then must be measured."""
        return self._opened_whole or self._view.size > 0

    @property
    def _at_hand(self) -> bool:
        """True if the file's records are available without asking a remote engine."""
        end = self.end_offset() if self._view.limit is None else self._view.limit
        return self._files.partition.available_end(self._view.start_offset) >= end

    def _measured_behind(self) -> None:
        self.context.kernel.forget_attributes(self.node_id)

    def _check_current(self) -> None:
        self._files.check_exists()
        self._files.partition.find_bounds()
        if not self._positions_hold():
            raise FileError(Refusal.GONE)

    def _positions_hold(self) -> bool:
        """Return whether the node's byte positions are still valid, so that the node can be opened."""
        return self.is_current()

    async def open(self, access: Access, pid: int) -> Handle:
        if self._view.source.form.outdated and not self.context.decoding.refused(pid, self.path):
            raise FileError(Refusal.GONE)  # The kernel then looks the name up again, once.
        writer = self._writer(access, pid)
        caller = reader = None
        if access.reads:
            from topicfs.fusefs.views.reader import ViewReader

            caller = self.program(pid)
            await self.context.blocking.run_inline_or_in_thread(self._check_current, caller)
            if not self.measured:
                await self._measure(self._open_seconds, pid)
        self._opened += 1
        if access.reads:
            self._opened_to_read += 1
            self._opened_whole = self._opened_whole or self.measured
            reader = ViewReader(self._view)
        options = LogHandleOptions(
            caller=caller,
            sync=self._sync(pid),
            cached=not self._view.open_ended and self.measured,
            emptied=access.truncates and not access.appends,
        )
        handle = LogHandle(self, reader, writer, self.context.blocking, options)
        return UnsizedHandle(handle, lambda: self._guess) if writer is None and not self.measured else handle

    def check_exists(self) -> None:
        self._files.check_exists()

    def begin_write(self) -> None:
        self._files.check_exists()
        self._files.attributes_forgotten(self.node_id)

    def write_failed(self) -> None:
        self._files.note_attributes_cached(self.node_id)

    def closed(self, *, reads: bool) -> None:
        self._opened -= 1
        super().closed(reads=reads)


def framing_of(form: Form) -> Framing:
    """Return the rules for splitting bytes written to a file of that form."""
    from topicfs.fusefs.appending.framing import BATCHES, JSON_LINES, LINES, SCHEMA_LINES

    if form is BATCH:
        return BATCHES
    if form.suffix in DECODED_SUFFIXES:
        return SCHEMA_LINES
    return JSON_LINES if form is JSON else LINES


class LogFile(ViewNode):
    """`log`, `log.kv`, `log.json`, `log.batch` of a partition: every retained record; written records are appended."""

    __slots__ = ("_form",)
    mode = nodes.LOG_MODE

    def __init__(self, parent: nodes.Directory, name: str, files: PartitionFiles, form: Form) -> None:
        super().__init__(parent, name, files, files.views.whole(form))
        self._form = form

    def is_current(self) -> bool:
        return self._view is self._files.views.whole(self._form)

    def _writer(self, access: Access, pid: int) -> AppendHandle | None:
        if not access.writes:
            return None
        self._files.check_writable()
        check_append(access, truncation_accepted=not self._form.suffix)
        return self._handle(pid, durable=access.durable)

    def _sync(self, pid: int) -> Callable[[], Awaitable[None]] | None:
        if self.context.engine.read_only:
            return None
        return lambda: self._handle(pid, durable=False).fsync()

    def _handle(self, pid: int, *, durable: bool) -> AppendHandle:
        from topicfs.fusefs.appending.handle import AppendHandle

        target, framing = self._files.target(self._form), framing_of(self._form)
        return AppendHandle(
            target, self.context.appending(), opener_pid=pid, durable=durable, framing=framing
        )

    def truncate(self, size: int, end: int | None) -> None:
        nodes.accept_truncation(size, self._view.size if self._view.measured else None, end)


class DecodedLogFile(LogFile):
    """`log.avro.json` and the like: decodes payloads with their schemas; encodes written lines with the newest schema."""

    __slots__ = ()
    entry_timeout = DECODED_SECONDS

    def is_current(self) -> bool:
        return not self._form.outdated and super().is_current()

    def _positions_hold(self) -> bool:
        """Return whether the node's byte positions are valid. After a new schema they are, although the node is outdated."""
        if not self._form.outdated:
            return super().is_current()
        return not self._view.outdated and self._view.start_offset == self._files.partition.log_start_offset
