"""A filesystem without contents, with the request loop, open modes and timeouts of a mount of topicfs.

It transfers the same bytes but does no work for them, so no filesystem that answers the kernel through this library
can be faster. Every directory has these names:

    …/log        reads `--bytes` of the text of `lines`; discards appends; does not use the page cache
    …/follow     a read waits for the next append and returns its bytes
    …/written    number of appended bytes, as text
    …/NAME       if NAME begins with a digit or @: a file of one line, cached, whose name soon expires
    …/           any other name: a directory

With `--segment FILE` a read of `log` also reads the corresponding part of FILE, computes its CRC-32C and copies it,
as any reader of Kafka's records must. With `--batches FILE` an append encodes its lines as a record batch and writes
the batch to FILE, as any writer must.

Run it as `python -m benchmarks.mount.setup.empty_filesystem MOUNTPOINT`. It prints a line once it is mounted, and
ends when it is unmounted or gets SIGTERM.
"""

# ruff: noqa: ARG002 - pyfuse3 gives every handler all of its arguments

from __future__ import annotations

import argparse
import errno
import itertools
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import crc32c
import pyfuse3
import trio

from benchmarks.lines import BLOCK, LINE_BYTES, READABLE
from topicfs.fusefs.daemon import IDLE_PYFUSE3_TASKS, MAX_WAITING_REQUESTS
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.files.log_handle import LogHandle
from topicfs.fusefs.files.selector_files import SELECTOR_CACHE_SECONDS
from topicfs.fusefs.following.follow import FollowHandle
from topicfs.fusefs.handle import BytesHandle
from topicfs.fusefs.mounting.limits import keep_freed_memory, raise_open_files, raise_read_ahead
from topicfs.fusefs.mounting.system_mount import mount, unmount
from topicfs.fusefs.nodes.nodes import (
    DIRECTORY_MODE,
    LOG_MODE,
    LONG_CACHE_SECONDS,
    READ_BLOCK,
    READ_MODE,
    Attributes,
)
from topicfs.fusefs.nodes.ownership import Ownership
from topicfs.fusefs.requests.loop import RequestLoop
from topicfs.fusefs.requests.request_counts import RequestCounts
from topicfs.fusefs.requests.wire import STAT_BLOCK
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.disk.native import system_clock


class NodeKind(Enum):
    DIRECTORY = "directory"
    LOG = "log"
    FOLLOW = "follow"
    WRITTEN = "written"
    RECORD = "record"


def kind_of(name: str) -> NodeKind:
    if name in {NodeKind.LOG.value, NodeKind.FOLLOW.value, NodeKind.WRITTEN.value}:
        return NodeKind(name)
    if name.startswith("@") or (name.isdigit() and len(name) > 1):
        return NodeKind.RECORD
    return NodeKind.DIRECTORY


@dataclass(eq=False, slots=True)
class OpenFollow:
    """An open file `follow`."""

    arrived: bytearray = field(default_factory=bytearray)
    woken: trio.Event = field(default_factory=trio.Event)


class EmptyFileSystem(pyfuse3.Operations):
    """A filesystem that returns prepared answers."""

    enable_writeback_cache = False

    def __init__(self, log_bytes: int) -> None:
        super().__init__()
        self._log_bytes = log_bytes
        self._written = 0
        self._readable = memoryview(READABLE)
        self._kinds = {pyfuse3.ROOT_INODE: NodeKind.DIRECTORY}
        self._known: dict[tuple[int, bytes], int] = {}
        self._next_inode = itertools.count(2).__next__
        self._next_fh = itertools.count(1).__next__
        self._open: dict[int, NodeKind] = {}
        self._followers: dict[int, OpenFollow] = {}
        self._owner = os.getuid(), os.getgid()

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        kind = self._kinds[inode]
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.entry_timeout = SELECTOR_CACHE_SECONDS if kind is NodeKind.RECORD else LONG_CACHE_SECONDS
        entry.attr_timeout = SELECTOR_CACHE_SECONDS if kind is NodeKind.RECORD else LONG_CACHE_SECONDS
        entry.st_mode = {NodeKind.DIRECTORY: DIRECTORY_MODE, NodeKind.LOG: LOG_MODE}.get(kind, READ_MODE)
        entry.st_uid, entry.st_gid = self._owner
        entry.st_size = {NodeKind.LOG: self._log_bytes, NodeKind.RECORD: LINE_BYTES - 1}.get(kind, 0)
        entry.st_blksize = READ_BLOCK if kind is NodeKind.LOG else 4096
        entry.st_blocks = -(-entry.st_size // STAT_BLOCK)
        entry.st_mtime_ns = entry.st_ctime_ns = entry.st_atime_ns = 0
        return entry

    async def lookup(self, parent_inode: int, name: bytes, ctx: Any) -> pyfuse3.EntryAttributes:
        inode = self._known.get((parent_inode, name))
        if inode is None:
            inode = self._next_inode()
            self._kinds[inode] = kind = kind_of(name.decode())
            if kind is not NodeKind.RECORD:
                self._known[parent_inode, name] = inode
        return self._attributes(inode)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        self.let_go(inode_list)

    def let_go(self, forgotten: Sequence[tuple[int, int]]) -> None:
        for inode, _count in forgotten:
            if self._kinds.get(inode) is NodeKind.RECORD:
                del self._kinds[inode]

    async def getattr(self, inode: int, ctx: Any) -> pyfuse3.EntryAttributes:
        return self._attributes(inode)

    async def setattr(self, inode: int, attr: Any, fields: Any, fh: int | None, ctx: Any) -> Any:
        return self._attributes(inode)

    async def getxattr(self, inode: int, name: bytes, ctx: Any) -> bytes:
        raise pyfuse3.FUSEError(errno.ENODATA)

    async def open(self, inode: int, flags: int, ctx: Any) -> pyfuse3.FileInfo:
        fh = self._next_fh()
        kind = self._open[fh] = self._kinds[inode]
        if kind is NodeKind.FOLLOW:
            self._followers[fh] = OpenFollow()
        ours: Any = {NodeKind.RECORD: BytesHandle, NodeKind.FOLLOW: FollowHandle}.get(kind, LogHandle)
        return pyfuse3.FileInfo(fh=fh, direct_io=ours.direct_io, keep_cache=ours.keep_cache)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        kind = self._open[fh]
        if kind is NodeKind.LOG:
            place = off % len(BLOCK)
            # Any contiguous buffer works, although the type stub does not allow it.
            return cast("bytes", self._readable[place : place + max(0, min(size, self._log_bytes - off))])
        if kind is NodeKind.RECORD:
            return BLOCK[off : min(off + size, LINE_BYTES - 1)]
        if kind is NodeKind.WRITTEN:
            return str(self._written).encode()[off : off + size]
        return await self._next_arrived(self._followers[fh], size)

    async def _next_arrived(self, follower: OpenFollow, size: int) -> bytes:
        while not follower.arrived:
            follower.woken = trio.Event()
            await follower.woken.wait()
        given = bytes(follower.arrived[:size])
        del follower.arrived[:size]
        return given

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        self._written += len(buf)
        for follower in self._followers.values():
            follower.arrived += buf
            follower.woken.set()
        return len(buf)

    async def flush(self, fh: int) -> None:
        pass

    async def fsync(self, fh: int, datasync: bool) -> None:
        pass

    async def release(self, fh: int) -> None:
        del self._open[fh]
        self._followers.pop(fh, None)


class ReadingFileSystem(EmptyFileSystem):
    """An EmptyFileSystem in which a read of `log` also reads, checks and copies a segment, without parsing it."""

    def __init__(self, log_bytes: int, segment: Path) -> None:
        super().__init__(log_bytes)
        self._segment = os.open(segment, os.O_RDONLY)
        self._segment_bytes = segment.stat().st_size
        self._from_disk = memoryview(bytearray(2 * len(READABLE)))
        self._given = memoryview(bytearray(len(READABLE)))

    def _place(self, offset: int) -> int:
        """Return the position in the segment that corresponds to an offset of the text."""
        return offset * self._segment_bytes // self._log_bytes

    async def read(self, fh: int, off: int, size: int) -> bytes:
        if self._open[fh] is not NodeKind.LOG:
            return await super().read(fh, off, size)
        given = max(0, min(size, self._log_bytes - off))
        place = self._place(off)
        from_disk = self._from_disk[: self._place(off + given) - place]
        os.preadv(self._segment, [from_disk], place)
        crc32c.crc32c(from_disk)
        self._given[:given] = from_disk[:given]
        return cast("bytes", self._given[:given])


class KeepingFileSystem(EmptyFileSystem):
    """An EmptyFileSystem that writes each append to a file, encoded as a record batch that has no offset."""

    def __init__(self, batches: Path) -> None:
        super().__init__(0)
        self._batches = os.open(batches, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._begun = b""

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        cut = buf.rfind(b"\n") + 1
        whole = self._begun + buf[:cut] if cut else b""
        self._begun = buf[cut:] if cut else self._begun + buf
        for batch in encode_lines(whole, timestamp=system_clock()):
            os.write(self._batches, batch)
        return await super().write(fh, off, buf)


class _Node(NamedTuple):
    """A node with the attributes that `CommonRequests` uses."""

    node_id: int
    entry_timeout: float


class _Opened(NamedTuple):
    """An open file with the attributes that `CommonRequests` uses."""

    direct_io: bool
    keep_cache: bool
    flushes: bool


class Common:
    """Adapts an empty filesystem to the request loop of topicfs, which works with plain values."""

    def __init__(self, filesystem: EmptyFileSystem) -> None:
        self._filesystem = filesystem
        self.read = filesystem.read
        self.flush = filesystem.flush
        self.release = filesystem.release

    async def find_or_offload(self, parent_id: int, name: bytes, pid: int) -> tuple[_Node, Attributes]:
        entry = await self._filesystem.lookup(parent_id, name, None)
        return _Node(entry.st_ino, entry.entry_timeout), _plain(entry)

    def forget(self, forgotten: Sequence[tuple[int, int]]) -> None:
        self._filesystem.let_go(forgotten)

    async def getattr(self, node_id: int, pid: int) -> Attributes:
        return _plain(await self._filesystem.getattr(node_id, None))

    async def open(self, node_id: int, flags: int, pid: int) -> tuple[int, _Opened]:
        info = await self._filesystem.open(node_id, flags, None)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        return info.fh, _Opened(info.direct_io, info.keep_cache, flushes=writes)

    async def write(self, fh: int, data: bytes, position: int) -> int:
        return await self._filesystem.write(fh, position, data)

    def follows(self, fh: int) -> bool:
        return True  # No other task is waiting.

    def opendir(self, node_id: int, pid: int) -> int:
        raise FileError(errno.ENOSYS)

    def releasedir(self, fh: int) -> None:
        raise FileError(errno.ENOSYS)


def _plain(entry: pyfuse3.EntryAttributes) -> Attributes:
    return Attributes(
        entry.st_mode, entry.st_size, entry.st_mtime_ns, entry.attr_timeout, entry.st_ino, entry.st_blksize
    )


async def serve(filesystem: EmptyFileSystem, mountpoint: Path) -> None:
    """Mount and serve, as the daemon of topicfs does."""
    device = mount(mountpoint, b"emptyfs", allow_other=False, read_only=False)
    loop = RequestLoop(device, Common(filesystem), Ownership.of_process(), RequestCounts())
    pyfuse3.init(filesystem, loop.mountpoint_of_library(), set())
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(_end_on_signal, loop.end)
            nursery.start_soon(_print_mounted, mountpoint)
            await loop.run(partial(pyfuse3.main, IDLE_PYFUSE3_TASKS, MAX_WAITING_REQUESTS), pyfuse3.terminate)
            nursery.cancel_scope.cancel()
    finally:
        pyfuse3.close(unmount=False)
        unmount(mountpoint, device)


async def serve_plainly(filesystem: EmptyFileSystem, mountpoint: Path) -> None:
    """Mount, and serve with pyfuse3's own request loop."""
    options = {*pyfuse3.default_options, "fsname=emptyfs", "subtype=emptyfs"}
    pyfuse3.init(filesystem, str(mountpoint), options)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(_end_on_signal, pyfuse3.terminate)
            nursery.start_soon(_print_mounted, mountpoint)
            await pyfuse3.main(IDLE_PYFUSE3_TASKS, MAX_WAITING_REQUESTS)
            nursery.cancel_scope.cancel()
    finally:
        pyfuse3.close(unmount=True)


async def _end_on_signal(
    end: Callable[[], None], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _number in signals:
            end()
            return


async def _print_mounted(mountpoint: Path) -> None:
    raise_read_ahead(str(mountpoint))
    print("mounted", flush=True)


def _filesystem(arguments: argparse.Namespace) -> EmptyFileSystem:
    if arguments.segment is not None:
        return ReadingFileSystem(arguments.bytes, arguments.segment)
    if arguments.batches is not None:
        return KeepingFileSystem(arguments.batches)
    return EmptyFileSystem(arguments.bytes)


def main() -> None:
    """Mount, and serve until the filesystem is unmounted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mountpoint")
    parser.add_argument("--bytes", type=int, default=0, help="how many bytes `log` has")
    parser.add_argument("--segment", type=Path, help="what a read of `log` reads, checks and copies")
    parser.add_argument("--batches", type=Path, help="where the lines of appends are kept")
    parser.add_argument(
        "--plain", action="store_true", help="serve all requests by pyfuse3, without our request loop"
    )
    arguments = parser.parse_args()
    raise_open_files()
    keep_freed_memory()
    serving = serve_plainly if arguments.plain else serve
    trio.run(serving, _filesystem(arguments), Path(arguments.mountpoint).absolute())


if __name__ == "__main__":
    main()
