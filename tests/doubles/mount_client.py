"""A mount without a kernel: the whole filesystem layer over an engine, and a client that takes paths."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self

from topicfs.coordination.engine import Engine
from topicfs.fusefs.appending.handle import Acks, Appending
from topicfs.fusefs.appending.linger_buffer import LingerBuffer, RemoteLingerBuffer
from topicfs.fusefs.appending.partitioners import partitioner_factory
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.filesystem import AttributeChange, TopicFileSystem
from topicfs.fusefs.following.waiting_reads import Program, WaitingReads
from topicfs.fusefs.metrics.collector import MetricsCollector
from topicfs.fusefs.nodes.context import MountContext, Settings, Shared
from topicfs.fusefs.nodes.decoded_forms import DecodedForms
from topicfs.fusefs.nodes.nodes import Attributes, Node
from topicfs.fusefs.nodes.view_measurer import ViewMeasurer
from topicfs.fusefs.processes.signals import Look
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.fusefs.threads.remote import RemoteCalls
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.disk.native import system_clock
from topicfs.storage.model import Buffer, Isolation

APPEND = os.O_WRONLY | os.O_APPEND
PID = 4242
"""The process id of the only program that uses the mount."""


class RecordingKernel:
    """A kernel that does nothing but note which cached data it was asked to drop."""

    def __init__(self) -> None:
        self.attributes: list[int] = []
        self.names: list[tuple[int, str]] = []

    def forget_attributes(self, node_id: int) -> None:
        self.attributes.append(node_id)

    def forget_name(self, parent_id: int, name: str) -> None:
        self.names.append((parent_id, name))


class MountClient:
    """Makes system calls as a program does, but by path. Each call looks up the whole path again."""

    def __init__(self, filesystem: TopicFileSystem, kernel: RecordingKernel) -> None:
        self.filesystem = filesystem
        self.kernel = kernel
        self.still_held = False

    @property
    def context(self) -> MountContext:
        return self.filesystem.context

    @property
    def engine(self) -> Engine:
        return self.context.engine

    def lookup(self, path: str) -> Node:
        """Look up each name of a path; return the node at its end. Raises FileError."""
        node: Node = self.filesystem.root
        for name in path.split("/") if path else ():
            node = self.filesystem.lookup(node.node_id, name.encode()).node
        return node

    def parent(self, path: str) -> tuple[int, bytes]:
        directory, _, name = path.rpartition("/")
        return self.lookup(directory).node_id, name.encode()

    async def stat(self, path: str) -> Attributes:
        return await self.filesystem.getattr(self.lookup(path).node_id)

    def list(self, path: str = "") -> list[str]:
        """Return the names that readdir returns, except `.` and `..`."""
        fh = self.filesystem.opendir(self.lookup(path).node_id)
        names = [entry.name for entry in self.filesystem.readdir(fh, 0)]
        self.filesystem.releasedir(fh)
        assert [".", ".."] == names[:2]
        return names[2:]

    async def mkdir(self, path: str) -> None:
        await self.filesystem.mkdir(*self.parent(path))

    async def rmdir(self, path: str) -> None:
        await self.filesystem.rmdir(*self.parent(path))

    async def open(self, path: str, flags: int = os.O_RDONLY, *, pid: int = PID) -> int:
        return (await self.filesystem.open(self.lookup(path).node_id, flags, pid)).fh

    async def close(self, fh: int) -> None:
        """Close the only descriptor of an open file: flush the file, then release it. The flush may raise an error."""
        try:
            await self.filesystem.flush(fh)
        finally:
            await self.filesystem.release(fh)

    async def cat(self, path: str, *, chunk: int = 65_536) -> bytes:
        """Read a file from its first byte to its end."""
        fh = await self.open(path)
        try:
            return await self.read_on(fh, chunk=chunk)
        finally:
            await self.filesystem.release(fh)

    async def read_on(self, fh: int, position: int = 0, *, chunk: int = 65_536) -> bytes:
        """Read an open file from `position` to its end."""
        content = b""
        while data := await self.filesystem.read(fh, position + len(content), chunk):
            assert len(data) <= chunk
            content += data
        return content

    async def append(self, path: str, data: Buffer, flags: int = APPEND) -> None:
        """Append `data` as a shell's `>>` does, with one write."""
        fh = await self.open(path, flags)
        try:
            assert await self.filesystem.write(fh, bytes(data)) == len(data)
        except BaseException:
            await self.filesystem.release(fh)
            raise
        await self.close(fh)

    async def truncate(self, path: str, size: int, fh: int | None = None) -> None:
        """Change a file's size by its path, or through the open file `fh`."""
        await self.filesystem.setattr(self.lookup(path).node_id, AttributeChange(size=size), fh)

    @property
    def reports(self) -> str:
        return "\n".join(self.context.reports.lines())


class Refused:
    """A block that must raise a FileError with the errno `name`: `with refused("EPERM"):`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reason = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        assert isinstance(error, FileError), f"expected {self.name}, got {error!r}"
        assert errno.errorcode[error.number] == self.name, error
        self.reason = error.reason
        return True


refused = Refused


@asynccontextmanager
async def mounted(
    engine: Engine,
    directory: Path | None,
    *,
    acks: Acks = Acks.LEADER,
    allow_delete: bool = False,
    isolation: Isolation = Isolation.READ_COMMITTED,
    partitioner: str = "kafka",
    max_waiting: int = 100,
    max_in_flight: int = 1,
    look: Callable[[int], Look | None] = lambda _pid: Look(1, stuck=False, pending=0),
) -> AsyncIterator[MountClient]:
    """Serve an engine as a mount without a kernel."""
    blocking = RemoteCalls() if engine.remote else BlockingCalls()
    reports = Reports(system_clock)
    kernel = RecordingKernel()
    clients: list[MountClient] = []
    waiting = WaitingReads(BlockingCalls(), bound=max_waiting, look=look)
    appending = Appending(
        acks=acks,
        linger_buffer=LingerBuffer(linger_ms=1),
        blocking=blocking,
        reports=reports,
        still_held=lambda pid, path: clients[0].still_held,
        caller=partial(Program, waiting) if engine.remote else None,
        remote_linger=RemoteLingerBuffer(1, blocking, reports) if engine.remote else None,
        max_in_flight=max_in_flight,
    )
    context = MountContext(
        engine=engine,
        settings=Settings(
            directories=() if directory is None else (directory,),
            allow_delete=allow_delete,
            isolation=isolation,
        ),
        reports=reports,
        clock=system_clock,
        blocking=blocking,
        appending=lambda: appending,
        waiting=waiting,
        measuring=ViewMeasurer(blocking),
        partitioners=partitioner_factory(partitioner),
        kernel=kernel,
        view_store=lambda partition: None,
        decoding=DecodedForms(partial(SchemaPlaces().catalog, engine)),
        status_lines=lambda: [
            "pid 1",
            *(f"warning {line}" for line in engine.warnings),
        ],
        metrics=lambda: MetricsCollector(engine).text(),
        shared=Shared(),
        started=system_clock(),
    )
    filesystem = TopicFileSystem(context)
    clients.append(MountClient(filesystem, kernel))
    async with filesystem.running():
        yield clients[0]
