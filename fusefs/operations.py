"""The uncommon requests: converts pyfuse3's calls and values to calls of `filesystem`; decides nothing itself.

Any exception other than FUSEError would end pyfuse3's main loop and the mount, so this outermost layer converts every
other exception to EIO and logs it.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import islice
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import pyfuse3

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.filesystem import AttributeChange, Found, ListedEntry, TopicFileSystem
from topicfs.fusefs.nodes.nodes import Attributes
from topicfs.fusefs.nodes.ownership import Ownership, shown_mode
from topicfs.fusefs.requests.request_counts import NUMBERS, RequestCounts
from topicfs.fusefs.requests.wire import STAT_BLOCK

_LOGGER = logging.getLogger("topicfs")

P = ParamSpec("P")
T = TypeVar("T")

LISTED_AT_ONCE = 16
"""Number of directory entries that are looked up before checking whether the kernel's buffer has space."""


def _pid(ctx: Any) -> int:
    """Return the ID of the calling process; 0 if unknown."""
    return ctx.pid if ctx else 0


def counted_handler(
    handler: Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]]:
    """Wrap a handler: count it, let it raise only FUSEError, and make room for its answer."""
    number = NUMBERS[handler.__name__]

    @functools.wraps(handler)
    async def answering(self: Operations, *args: P.args, **kwargs: P.kwargs) -> T:
        began, error_number = time.monotonic_ns(), 0
        try:
            return await handler(self, *args, **kwargs)
        except FileError as error:
            error_number = error.number
        except Exception:  # A defect: the program gets EIO, and the daemon goes on.
            _LOGGER.exception("%s: unexpected", handler.__name__)
            error_number = Refusal.FAILED.number
        finally:
            self.counts.note(number, time.monotonic_ns() - began)
            self.make_room()
        self.counts.note_error(number, error_number)
        raise pyfuse3.FUSEError(error_number)

    return answering  # type: ignore[return-value] # wraps() knows no self


def _listed(filesystem: TopicFileSystem, fh: int, start: int) -> list[ListedEntry]:
    return list(islice(filesystem.readdir(fh, start), LISTED_AT_ONCE))


class PollNotification(NamedTuple):
    """Notifies the kernel of a poll through pyfuse3, after making room for this in the request loop's pair of sockets."""

    handle: pyfuse3.PollHandle
    make_room: Callable[[], None]

    def notify(self) -> None:
        self.make_room()
        self.handle.notify()


class Operations(pyfuse3.Operations):
    """All handlers for pyfuse3."""

    enable_writeback_cache = False

    def __init__(
        self,
        filesystem: TopicFileSystem,
        counts: RequestCounts,
        owner: Ownership,
        make_room: Callable[[], None],
    ) -> None:
        """Let `filesystem` handle requests, count them in `counts`, and call `make_room` before each answer."""
        super().__init__()
        self.counts = counts
        self.make_room = make_room
        self._filesystem = filesystem
        self._owner = owner

    def _entry(
        self, attributes: Attributes, *, node_id: int, entry_timeout: float
    ) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = node_id
        entry.entry_timeout = entry_timeout
        # pyfuse3 returns the node's own ID for a lookup. If another inode number must be shown, the kernel
        # has to call stat.
        entry.attr_timeout = attributes.timeout if node_id == attributes.ino else 0
        entry.st_mode = shown_mode(attributes.mode, self._owner.umask)
        entry.st_uid = self._owner.uid
        entry.st_gid = self._owner.gid
        entry.st_size = attributes.size
        entry.st_blksize = attributes.block_size
        entry.st_blocks = -(-attributes.size // STAT_BLOCK)
        entry.st_mtime_ns = entry.st_ctime_ns = entry.st_atime_ns = attributes.mtime_ns
        return entry

    def _found(self, found: Found) -> pyfuse3.EntryAttributes:
        return self._entry(
            found.attributes, node_id=found.node.node_id, entry_timeout=found.node.entry_timeout
        )

    def _shown(self, attributes: Attributes) -> pyfuse3.EntryAttributes:
        return self._entry(attributes, node_id=attributes.ino, entry_timeout=0)

    @counted_handler
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

    @counted_handler
    async def readlink(self, inode: int, ctx: Any) -> bytes:
        filesystem = self._filesystem
        return (
            await filesystem.run_inline_or_in_thread(lambda: filesystem.readlink(inode), _pid(ctx))
        ).encode()

    @counted_handler
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: Any) -> pyfuse3.EntryAttributes:
        """Create a directory, and count one lookup of its node."""
        return self._found(await self._filesystem.mkdir(parent_inode, name, _pid(ctx)))

    @counted_handler
    async def rmdir(self, parent_inode: int, name: bytes, ctx: Any) -> None:
        await self._filesystem.rmdir(parent_inode, name, _pid(ctx))

    @counted_handler
    async def create(self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: Any) -> Any:
        raise self._filesystem.refuse(parent_inode, name, "creating a file")

    @counted_handler
    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: Any) -> Any:
        raise self._filesystem.refuse(parent_inode, name, "creating a file")

    @counted_handler
    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: Any) -> Any:
        raise self._filesystem.refuse(parent_inode, name, "creating a link")

    @counted_handler
    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: Any) -> Any:
        raise self._filesystem.refuse(new_parent_inode, new_name, "creating a link")

    @counted_handler
    async def unlink(self, parent_inode: int, name: bytes, ctx: Any) -> None:
        await self._filesystem.unlink(parent_inode, name, _pid(ctx))

    @counted_handler
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

    @counted_handler
    async def fsync(self, fh: int, datasync: bool) -> None:
        await self._filesystem.fsync(fh)

    @counted_handler
    async def poll(self, inode: int, fh: int, poll_handle: Any, ctx: Any) -> int:
        notify = None if poll_handle is None else PollNotification(poll_handle, self.make_room)
        return self._filesystem.poll(fh, notify)

    @counted_handler
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        """Send directory entries, and count one lookup for each of them, except `.` and `..`."""
        filesystem, start, pid = self._filesystem, start_id, self._filesystem.reader_of(fh)
        while listed := await filesystem.run_inline_or_in_thread(
            partial(_listed, filesystem, fh, start), pid
        ):
            for name, found, start in listed:
                if not pyfuse3.readdir_reply(token, name.encode(), self._found(found), start):
                    return
                if name not in (".", ".."):
                    filesystem.remember(found.node)

    @counted_handler
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Do nothing: changes of a directory are on disk when the call that made them returns."""

    @counted_handler
    async def statfs(self, ctx: Any) -> pyfuse3.StatvfsData:
        disk = self._filesystem.statfs()
        shown = pyfuse3.StatvfsData()
        names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail")
        for name in names:
            setattr(shown, name, getattr(disk, name))
        shown.f_namemax = 255
        return shown

    @counted_handler
    async def getxattr(self, inode: int, name: bytes, ctx: Any) -> bytes:
        filesystem, attribute = self._filesystem, name.decode("utf-8", "replace")
        return await filesystem.run_inline_or_in_thread(
            lambda: filesystem.getxattr(inode, attribute), _pid(ctx)
        )

    @counted_handler
    async def listxattr(self, inode: int, ctx: Any) -> list[bytes]:
        filesystem = self._filesystem
        names = await filesystem.run_inline_or_in_thread(lambda: filesystem.listxattr(inode), _pid(ctx))
        return [name.encode() for name in names]

    @counted_handler
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: Any) -> None:
        raise FileError(Refusal.FIXED_ATTRIBUTE)

    @counted_handler
    async def removexattr(self, inode: int, name: bytes, ctx: Any) -> None:
        raise FileError(Refusal.FIXED_ATTRIBUTE)
