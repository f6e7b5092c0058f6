"""The adapter to the kernel: pyfuse3's requests become calls of `filesystem`, its values pyfuse3's. No decisions.

Any exception that is not a FUSEError would end pyfuse3's main loop and with it the mount; so the outermost layer
here turns whatever is left into EIO and a line in the log.
"""

# ruff: noqa: ARG002 - pyfuse3 gives every handler all of its arguments

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pyfuse3

from topicfs.fusefs.errors import FileError
from topicfs.fusefs.filesystem import AttributeChange, Found, ListedEntry, TopicFileSystem
from topicfs.fusefs.nodes.nodes import Attributes
from topicfs.fusefs.nodes.ownership import Ownership, shown_mode
from topicfs.fusefs.requests.common_requests import CommonRequests
from topicfs.fusefs.requests.request_counts import NUMBERS, RequestCounts

log = logging.getLogger("topicfs")

P = ParamSpec("P")
T = TypeVar("T")

BLOCK = 512
"""Bytes; st_blocks counts in these."""

LISTED_AT_ONCE = 16
"""Entries of a directory that are looked up before the kernel is asked whether it takes more."""

END_SECONDS = 5.0
"""Longest time that the end of a mount waits for a name being forgotten, which may itself wait for a request to be answered."""


def _pid(ctx: Any) -> int:
    """Id of the process that asks; 0 where it is not known."""
    return ctx.pid if ctx else 0


async def _answer(counts: RequestCounts, name: str, handled: Awaitable[T]) -> T:
    """Wait for a handler, count what became of it, and let nothing but FUSEError out of it."""
    began = time.monotonic_ns()
    try:
        return await handled
    except FileError as error:
        counts.note_error(NUMBERS[name], error.number)
        raise pyfuse3.FUSEError(error.number) from None
    except pyfuse3.FUSEError as error:
        counts.note_error(NUMBERS[name], error.errno)
        raise
    except Exception:
        log.exception("%s: unexpected", name)
        counts.note_error(NUMBERS[name], errno.EIO)
        raise pyfuse3.FUSEError(errno.EIO) from None
    finally:
        counts.note(NUMBERS[name], time.monotonic_ns() - began)


def answered(
    handler: Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]]:
    """Wrap a handler so that it is counted, and raises nothing but FUSEError."""

    @functools.wraps(handler)
    def answering(self: Operations, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return _answer(self.counts, handler.__name__, handler(self, *args, **kwargs))

    return answering  # type: ignore[return-value] # wraps() knows no self


class KernelNotifications:
    """The ways of telling the kernel to forget; names from a thread of its own, which ends before the session does.

    (pyfuse3's own thread for this goes on after `close`, with a session that is gone.)
    """

    def __init__(self) -> None:
        self._names: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def forget_attributes(self, node_id: int) -> None:
        """Invalidate attributes alone: half a microsecond, and safe while a request is answered."""
        with contextlib.suppress(OSError):  # ENOENT: it had forgotten already.
            pyfuse3.invalidate_inode(node_id, attr_only=True)

    def forget_name(self, parent_id: int, name: str) -> None:
        """Invalidate a name, soon: it may have to wait for a request under way, which is answered meanwhile."""
        if self._ended:
            return
        self._names.put((parent_id, os.fsencode(name)))
        if self._thread is None:
            thread = threading.Thread(target=self._forget_names, name="forget-names", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # The system has no thread left: the next name tries again.
                log.warning("forgetting names cannot begin: %s", error)
            else:
                self._thread = thread

    def _forget_names(self) -> None:
        while (forgotten := self._names.get()) and not self._ended:
            try:
                pyfuse3.invalidate_entry(*forgotten)
            except OSError as error:
                # ENOENT, mostly; and whatever it still believes is over after its timeout.
                log.debug("%s: not forgotten: %s", forgotten, error)

    def end(self) -> None:
        """End the thread: the kernel is told nothing any more (blocking).

        Called while requests are still answered: what is being told may wait for one of them, and unanswered neither
        would ever end.
        """
        self._ended = True
        self._names.put(None)
        if self._thread is not None:
            self._thread.join(END_SECONDS)


def _nothing_begun() -> None:
    """Return what `CommonRequests.take` returns of a request that pyfuse3 got first."""


def _listed(filesystem: TopicFileSystem, fh: int, start: int) -> list[ListedEntry]:
    return list(islice(filesystem.readdir(fh, start), LISTED_AT_ONCE))


class Operations(pyfuse3.Operations):
    """Every handler."""

    enable_writeback_cache = False

    def __init__(
        self,
        filesystem: TopicFileSystem,
        common: CommonRequests | None = None,
        counts: RequestCounts | None = None,
        *,
        owner: Ownership | None = None,
    ) -> None:
        """Handle by `filesystem`; where `common` answers requests first, go on with what was begun there.

        `counts`: where what is answered here is counted. All files belong to `owner`, or to the process's user.
        """
        super().__init__()
        self.counts = RequestCounts() if counts is None else counts
        self._filesystem = filesystem
        self._begun = _nothing_begun if common is None else common.take
        self._owner = owner or Ownership.of_process()

    def _entry(
        self, attributes: Attributes, *, node_id: int, entry_timeout: float
    ) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = node_id
        entry.entry_timeout = entry_timeout
        # pyfuse3 shows the node's own number in a lookup; where another is to be shown, stat has to ask.
        entry.attr_timeout = attributes.timeout if node_id == attributes.ino else 0
        entry.st_mode = shown_mode(attributes.mode, self._owner.umask)
        entry.st_uid = self._owner.uid
        entry.st_gid = self._owner.gid
        entry.st_size = attributes.size
        entry.st_blksize = attributes.block_size
        entry.st_blocks = -(-attributes.size // BLOCK)
        entry.st_mtime_ns = entry.st_ctime_ns = entry.st_atime_ns = attributes.mtime_ns
        return entry

    def _found(self, found: Found) -> pyfuse3.EntryAttributes:
        return self._entry(
            found.attributes, node_id=found.node.node_id, entry_timeout=found.node.entry_timeout
        )

    def _shown(self, attributes: Attributes) -> pyfuse3.EntryAttributes:
        return self._entry(attributes, node_id=attributes.ino, entry_timeout=0)

    @answered
    async def lookup(self, parent_inode: int, name: bytes, ctx: Any) -> pyfuse3.EntryAttributes:
        """Add one to the lookup count."""
        return self._found(
            await (self._begun() or self._filesystem.find_patiently(parent_inode, name, _pid(ctx)))
        )

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Take from lookup counts."""
        began = time.monotonic_ns()
        try:
            self._filesystem.forget(inode_list)
        except Exception:
            log.exception("forget: unexpected")
        self.counts.note(NUMBERS["forget"], time.monotonic_ns() - began)

    @answered
    async def getattr(self, inode: int, ctx: Any) -> pyfuse3.EntryAttributes:
        return self._shown(await (self._begun() or self._filesystem.getattr(inode, _pid(ctx))))

    @answered
    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: Any,
    ) -> pyfuse3.EntryAttributes:
        change = AttributeChange(
            size=attr.st_size if fields.update_size else None,
            mode=fields.update_mode,
            owner=fields.update_uid or fields.update_gid,
        )
        return self._shown(await self._filesystem.setattr(inode, change, fh, _pid(ctx)))

    @answered
    async def readlink(self, inode: int, ctx: Any) -> bytes:
        filesystem = self._filesystem
        return (await filesystem.patiently(lambda: filesystem.readlink(inode), _pid(ctx))).encode()

    @answered
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: Any) -> pyfuse3.EntryAttributes:
        """Add one to the lookup count."""
        return self._found(await self._filesystem.mkdir(parent_inode, name, _pid(ctx)))

    @answered
    async def rmdir(self, parent_inode: int, name: bytes, ctx: Any) -> None:
        await self._filesystem.rmdir(parent_inode, name, _pid(ctx))

    @answered
    async def create(self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: Any) -> Any:
        raise self._filesystem.refuse(parent_inode, name, "creating a file")

    @answered
    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: Any) -> Any:
        raise self._filesystem.refuse(parent_inode, name, "creating a file")

    @answered
    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: Any) -> Any:
        raise self._filesystem.refuse(parent_inode, name, "creating a link")

    @answered
    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: Any) -> Any:
        raise self._filesystem.refuse(new_parent_inode, new_name, "creating a link")

    @answered
    async def unlink(self, parent_inode: int, name: bytes, ctx: Any) -> None:
        await self._filesystem.unlink(parent_inode, name, _pid(ctx))

    @answered
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: Any,
    ) -> None:
        await self._filesystem.rename(parent_inode_old, name_old, parent_inode_new, name_new, _pid(ctx))

    @answered
    async def open(self, inode: int, flags: int, ctx: Any) -> pyfuse3.FileInfo:
        fh, handle = await (self._begun() or self._filesystem.open(inode, flags, _pid(ctx)))
        return pyfuse3.FileInfo(
            fh=fh,
            direct_io=handle.direct_io,
            keep_cache=handle.keep_cache,
        )

    def read(self, fh: int, off: int, size: int) -> Coroutine[Any, Any, bytes]:
        kind = "follow" if self._filesystem.follows(fh) else "read"
        return _answer(self.counts, kind, self._read(self._begun() or self._filesystem.read(fh, off, size)))

    async def _read(self, reading: Awaitable[bytes | memoryview]) -> bytes:
        found = await reading
        self.counts.bytes_read += len(found)
        # Any contiguous buffer does, whatever the stub says: a view of a mapping saves a copy.
        return cast("bytes", found)

    # With each line of a shell all three are asked for: without a coroutine of their own.

    def write(self, fh: int, off: int, buf: bytes) -> Coroutine[Any, Any, int]:
        return _answer(
            self.counts, "write", self._write(self._begun() or self._filesystem.write(fh, buf, off))
        )

    async def _write(self, writing: Awaitable[int]) -> int:
        written = await writing
        self.counts.bytes_written += written
        return written

    def flush(self, fh: int) -> Coroutine[Any, Any, None]:
        return _answer(self.counts, "flush", self._begun() or self._filesystem.flush(fh))

    @answered
    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._filesystem.fsync(fh)

    def release(self, fh: int) -> Coroutine[Any, Any, None]:
        return _answer(self.counts, "release", self._begun() or self._filesystem.release(fh))

    @answered
    async def poll(self, inode: int, fh: int, poll_handle: Any, ctx: Any) -> int:
        return self._filesystem.poll(fh, poll_handle)

    @answered
    async def opendir(self, inode: int, ctx: Any) -> int:
        return self._filesystem.opendir(inode, _pid(ctx))

    @answered
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        """Add one to the lookup count of each entry passed on, `.` and `..` excepted."""
        filesystem, start, pid = self._filesystem, start_id, self._filesystem.reader_of(fh)
        while listed := await filesystem.patiently(partial(_listed, filesystem, fh, start), pid):
            for name, found, start in listed:
                if not pyfuse3.readdir_reply(token, name.encode(), self._found(found), start):
                    return
                if name not in (".", ".."):
                    filesystem.remember(found.node)

    @answered
    async def releasedir(self, fh: int) -> None:
        self._filesystem.releasedir(fh)

    @answered
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Do nothing: what directories hold is on disk when the call that made it returns."""

    @answered
    async def statfs(self, ctx: Any) -> pyfuse3.StatvfsData:
        disk = self._filesystem.statfs()
        shown = pyfuse3.StatvfsData()
        for name in (
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
        ):
            setattr(shown, name, getattr(disk, name))
        shown.f_namemax = 255
        return shown

    @answered
    async def getxattr(self, inode: int, name: bytes, ctx: Any) -> bytes:
        filesystem, attribute = self._filesystem, name.decode("utf-8", "replace")
        return await filesystem.patiently(lambda: filesystem.getxattr(inode, attribute), _pid(ctx))

    @answered
    async def listxattr(self, inode: int, ctx: Any) -> list[bytes]:
        filesystem = self._filesystem
        names = await filesystem.patiently(lambda: filesystem.listxattr(inode), _pid(ctx))
        return [name.encode() for name in names]

    @answered
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: Any) -> None:
        raise pyfuse3.FUSEError(errno.EOPNOTSUPP)

    @answered
    async def removexattr(self, inode: int, name: bytes, ctx: Any) -> None:
        raise pyfuse3.FUSEError(errno.EOPNOTSUPP)
