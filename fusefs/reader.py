"""Reads files of a mount by path, but uses neither a kernel nor a daemon: for `topicfs cat`.

The reader uses the same tree, names and open files as a mount. A single program waits for each answer, so long calls
need no thread, and no allowance limits a request.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.log_file import ViewNode
from topicfs.fusefs.files.status import engine_lines
from topicfs.fusefs.filesystem import TopicFileSystem
from topicfs.fusefs.following.waiting_reads import WaitingReads
from topicfs.fusefs.following.wakeups import Waker
from topicfs.fusefs.nodes.context import KernelCache, MountContext, Settings, Shared
from topicfs.fusefs.nodes.decoded_forms import DecodedForms
from topicfs.fusefs.nodes.nodes import READ_BLOCK, Directory, FileNode, Link, Node
from topicfs.fusefs.nodes.view_measurer import Measurable, ViewMeasurer
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls, RequestingProcess
from topicfs.fusefs.tree.partitions import PartitionDirectory
from topicfs.fusefs.tree.topics import TopicDirectory
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.disk.native import system_clock
from topicfs.storage.messages import did_you_mean, which_topic
from topicfs.storage.model import Isolation, Offset

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine

T = TypeVar("T")

WHOLE = "log"
"""The file with all records; the default if the path names a partition."""

LISTED_NAMES = 20
"""How many names of a directory an error lists."""


class PathError(Exception):
    """A file could not be found or read: its path, and the reason."""

    def __init__(self, path: str, error: FileError) -> None:
        super().__init__(f"{path or '/'}: {error.reason or os.strerror(error.number)}")


class MountReader:
    """The files of a mount over a read-only engine. Use it inside `run_alone`."""

    def __init__(
        self,
        engine: Engine,
        *,
        directories: tuple[Path, ...],
        isolation: Isolation,
        schemas: SchemaPlaces | None = None,
    ) -> None:
        settings = Settings(directories=directories, isolation=isolation)
        decoding = DecodedForms(partial((schemas or SchemaPlaces()).catalog, engine))
        self._filesystem = TopicFileSystem(_context(engine, settings, decoding))

    def close(self) -> None:
        """Stop listening to the engine."""
        self._filesystem.root.topics.close()

    def find(self, path: str) -> FileNode:
        """Return the file at a path; for a partition, its `log`. Raises PathError."""
        node: Node = self._filesystem.root
        for name in filter(None, path.split("/")):
            node = self._step(node, name)
        if isinstance(node, PartitionDirectory):
            node = self._step(node, WHOLE)
        if isinstance(node, Directory):
            raise PathError(node.path, FileError(Refusal.IS_A_DIRECTORY, _described(node)))
        assert isinstance(node, FileNode)
        if node.endless:
            remedy = "`topicfs cat --follow TOPIC/PARTITION` shows appended records"
            raise PathError(node.path, FileError(Refusal.INVALID, f"waits for records without end; {remedy}"))
        return node

    def _step(self, directory: Node, name: str) -> Node:
        """Return the node with that name; if the node is a link, return its target."""
        try:
            node = self._filesystem.lookup(directory.node_id, os.fsencode(name)).node
            if not isinstance(node, Link):
                return node
            return self._step(directory, self._filesystem.readlink(node.node_id))
        except FileError as error:
            path = f"{directory.path}/{name}" if directory.path else name
            if error.number == errno.ENOENT and isinstance(directory, Directory):
                hint = did_you_mean(name, directory.names())
                if directory is self._filesystem.root and not name.startswith("@"):
                    hint = which_topic(name, directory.context.engine.topics())
                elif hint and isinstance(directory, PartitionDirectory):
                    error.reason = "no such file"  # The name does not look like a selector.
                error.reason = f"{error.reason or os.strerror(error.number)}{hint}"
            raise PathError(path, error) from error

    async def contents(self, file: FileNode) -> AsyncGenerator[bytes | memoryview]:
        """Yield a file's content in pieces; damage raises PathError after everything before it was yielded."""
        try:
            opened = await self._filesystem.open(file.node_id, os.O_RDONLY, os.getpid())
            # There is no page cache that would pad a short read.
            opened.handle.direct_io = True
            try:
                position = 0
                while data := await self._filesystem.read(opened.fh, position, READ_BLOCK):
                    position += len(data)
                    yield data
            finally:
                await self._filesystem.release(opened.fh)
        except FileError as error:
            raise PathError(file.path, error) from error

    @staticmethod
    def end_of(file: FileNode) -> Offset | None:
        """Return the exclusive end offset of a file that grows with its partition; None for any other file."""
        return file.end_offset() if isinstance(file, ViewNode) and file.open_ended else None


def _described(directory: Directory) -> str:
    names = directory.names()
    left = len(names) - LISTED_NAMES
    listed = ", ".join(names[:LISTED_NAMES]) + (f" and {left} more" if left > 0 else "")
    whole = (
        f"; {directory.path}/{WHOLE} has the records of all partitions"
        if isinstance(directory, TopicDirectory)
        else ""
    )
    return f"is a directory; choose a file in it{whole} (it has {listed or 'nothing'})"


def run_alone(coroutine: Coroutine[object, None, T]) -> T:
    """Run a coroutine that never waits, like all coroutines in this module. Needs neither an event loop nor trio."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a file tried to wait, but there is no event loop")


class _SameThread(BlockingCalls):
    """Runs calls in the calling thread: no other program has to wait."""

    def __init__(self) -> None:
        """Set no limit, because there are no threads."""

    async def run(
        self, call: Callable[[], T], *, abandon: bool = False, caller: RequestingProcess | None = None
    ) -> T:
        return call()

    async def in_thread(self, call: Callable[[], T], caller: RequestingProcess | None = None) -> T:
        return call()

    run_inline_or_in_thread = in_thread


class _NoMeasurer(ViewMeasurer):
    """Leaves sizes unknown, because reading to the end needs no size."""

    def __init__(self) -> None:
        """Queue nothing."""

    def measured(self, view: Measurable) -> bool:
        return False

    async def measure(
        self, view: Measurable, *, seconds: float, ended: Callable[[], bool] = lambda: False
    ) -> bool:
        return False

    async def measure_little(self, view: Measurable, *, seconds: float) -> None:
        pass

    def measure_later(self, view: Measurable, then: Callable[[], None], *, little: bool = False) -> None:
        pass


class _NoWaker(Waker):
    """Wakes no reads, because an open file shows only existing records."""

    def run_soon(self) -> Callable[[Callable[[], None]], None]:
        return lambda _call: None


class _NoReports(Reports):
    """Reports nothing: each error is raised to the program."""

    def _say(self, level: int, where: str, reason: str) -> None:
        pass


def _refuse_writing(*_: object) -> NoReturn:
    raise AssertionError("a file that is only read was opened to be written")


def _context(engine: Engine, settings: Settings, decoding: DecodedForms) -> MountContext:
    blocking = _SameThread()
    waiting = WaitingReads(blocking)
    waiting.waker = _NoWaker()
    reports = _NoReports(system_clock)

    def status_lines() -> list[str]:
        return [
            *engine_lines(engine),
            f"isolation {settings.isolation.value}",
            *(f"warning {line}" for line in engine.warnings),
        ]

    def metrics() -> str:
        from topicfs.fusefs.metrics.collector import MetricsCollector

        return MetricsCollector(engine).text()

    return MountContext(
        engine=engine,
        settings=settings,
        reports=reports,
        clock=system_clock,
        blocking=blocking,
        appending=_refuse_writing,
        waiting=waiting,
        measuring=_NoMeasurer(),
        partitioners=_refuse_writing,
        kernel=KernelCache(),
        view_store=lambda _partition: None,
        status_lines=status_lines,
        metrics=metrics,
        shared=Shared(),
        started=system_clock(),
        decoding=decoding,
    )
