"""A filesystem with nothing behind it: the same request loop, open modes and timeouts as a mount of topicfs.

It moves the same bytes and does no work for them, so it is the ceiling for anything that answers the kernel from this
library. Whatever the path, the names are these:

    …/log        reads as `--bytes` of the lines in `lines`; takes appends and forgets them; past the page cache
    …/follow     a read waits for the next append and gives its bytes
    …/written    how many bytes were appended, as text
    …/NAME       where NAME begins with a digit or with @: a file of one line, cached, whose name is soon forgotten
    …/           any other name: a directory

Run as `python -m benchmarks.mount.setup.empty_filesystem MOUNTPOINT`; it prints a line once it is mounted, and ends when it
is unmounted or gets SIGTERM.
"""

# ruff: noqa: ARG002 - pyfuse3 gives every handler all of its arguments

from __future__ import annotations

import argparse
import errno
import itertools
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

import pyfuse3
import trio

from benchmarks.lines import BLOCK, LINE_BYTES, READABLE
from fusefs.daemon import SPARE_TASKS
from fusefs.files.selected import REMEMBERED_SECONDS
from fusefs.following.waiting import MAX_WAITING
from fusefs.mounting import request_loop
from fusefs.mounting.limits import keep_freed_memory, raise_open_files, raise_read_ahead
from fusefs.nodes.handles import BytesHandle, FollowFile, LogHandle
from fusefs.nodes.nodes import DIRECTORY_MODE, FOR_LONG, LOG_MODE, READ_BLOCK, READ_MODE
from fusefs.operations import BLOCK as STAT_BLOCK


class NodeKind(Enum):
    """The kind of a name."""

    DIRECTORY = "directory"
    LOG = "log"
    FOLLOW = "follow"
    WRITTEN = "written"
    RECORD = "record"


def kind_of(name: str) -> NodeKind:
    """Return the kind, which follows from the name alone."""
    if name in {NodeKind.LOG.value, NodeKind.FOLLOW.value, NodeKind.WRITTEN.value}:
        return NodeKind(name)
    if name.startswith("@") or (name.isdigit() and len(name) > 1):
        return NodeKind.RECORD
    return NodeKind.DIRECTORY


@dataclass(eq=False, slots=True)
class Follower:
    """One open `follow`."""

    arrived: bytearray = field(default_factory=bytearray)
    woken: trio.Event = field(default_factory=trio.Event)


class EmptyFileSystem(pyfuse3.Operations):
    """Answers at once."""

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
        self._followers: dict[int, Follower] = {}
        self._owner = os.getuid(), os.getgid()

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        kind = self._kinds[inode]
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.entry_timeout = REMEMBERED_SECONDS if kind is NodeKind.RECORD else FOR_LONG
        entry.attr_timeout = REMEMBERED_SECONDS if kind is NodeKind.RECORD else FOR_LONG
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
        for inode, _count in inode_list:
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
            self._followers[fh] = Follower()
        ours: Any = {NodeKind.RECORD: BytesHandle, NodeKind.FOLLOW: FollowFile}.get(kind, LogHandle)
        return pyfuse3.FileInfo(fh=fh, direct_io=ours.direct_io, keep_cache=ours.keep_cache)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        kind = self._open[fh]
        if kind is NodeKind.LOG:
            place = off % len(BLOCK)
            # Any contiguous buffer does, whatever the stub says.
            return cast("bytes", self._readable[place : place + max(0, min(size, self._log_bytes - off))])
        if kind is NodeKind.RECORD:
            return BLOCK[off : min(off + size, LINE_BYTES - 1)]
        if kind is NodeKind.WRITTEN:
            return str(self._written).encode()[off : off + size]
        return await self._next_arrived(self._followers[fh], size)

    async def _next_arrived(self, follower: Follower, size: int) -> bytes:
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


async def serve(mountpoint: str, log_bytes: int, loop: request_loop.RequestLoop) -> None:
    """Mount and serve, as the daemon of topicfs does."""
    options = {*pyfuse3.default_options, "fsname=emptyfs", "subtype=emptyfs"}
    pyfuse3.init(EmptyFileSystem(log_bytes), mountpoint, options)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(_end_on_signal)
            request_loop.use(loop, pyfuse3)
            nursery.start_soon(_print_mounted, mountpoint)
            await pyfuse3.main(max_tasks=MAX_WAITING + SPARE_TASKS)
            nursery.cancel_scope.cancel()
    finally:
        pyfuse3.close(unmount=True)


async def _end_on_signal(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _number in signals:
            pyfuse3.terminate()
            return


async def _print_mounted(mountpoint: str) -> None:
    raise_read_ahead(mountpoint)
    print("mounted", flush=True)


def main() -> None:
    """Run until unmounted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mountpoint")
    parser.add_argument("--bytes", type=int, default=0, help="how many bytes `log` has")
    parser.add_argument(
        "--request-loop", type=request_loop.RequestLoop, default=request_loop.choose(None, pyfuse3)
    )
    arguments = parser.parse_args()
    raise_open_files()
    keep_freed_memory()
    trio.run(serve, arguments.mountpoint, arguments.bytes, arguments.request_loop)


if __name__ == "__main__":
    main()
