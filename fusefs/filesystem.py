"""The filesystem without a kernel: FUSE operations on the tree, with plain values.

Every method raises only FileError: the table in `errors` translates errors of the engine, and unexpected errors
become EIO with a traceback in the log. Only methods that may wait are async. Other methods, and the code between two
awaits, run without interruption in the event loop's thread.
"""

import errno
import itertools
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import trio

from topicfs.fusefs.appending.flags import access_of
from topicfs.fusefs.errors import FileError, Refusal, file_error
from topicfs.fusefs.handle import Handle, Notify
from topicfs.fusefs.nodes import nodes
from topicfs.fusefs.nodes.context import MountContext
from topicfs.fusefs.threads.remote import event_loop_never_waits
from topicfs.fusefs.tree.root import RootDirectory
from topicfs.storage.errors import StorageError, UnknownGroupError
from topicfs.storage.remote import RemoteEngine, ThreadNeededError

_LOGGER = logging.getLogger("topicfs")

T = TypeVar("T")

MAX_NAME = 255
"""Maximum length of a name in bytes, as in other filesystems."""

MAX_SELECTOR_NODES = 4096
"""Limit on selector nodes that the kernel may hold. Above it, the kernel is asked to forget the oldest nodes."""

FORGET_BATCHES = 8
"""When there are too many selector nodes, the names of the oldest 1/FORGET_BATCHES are invalidated together.

Each such batch costs one getattr and one thread switch.
"""


def _is_file_name(name: str) -> bool:
    """Return whether the kernel accepts a listed name. One invalid name would make the kernel refuse the listing."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


class Found(NamedTuple):
    """A node found by a lookup, for the answer to the kernel."""

    node: nodes.Node
    attributes: nodes.Attributes


class ListedEntry(NamedTuple):
    """A directory entry; `next_entry` is the readdir cookie of the entry after it."""

    name: str
    found: Found
    next_entry: int


class Opened(NamedTuple):
    """The handle of an open(2), and how the kernel should use it."""

    fh: int
    handle: Handle


class AttributeChange(NamedTuple):
    """The changes that a setattr requests."""

    size: int | None = None
    mode: bool = False
    owner: bool = False


class _OpenFile(NamedTuple):
    handle: Handle
    node: nodes.Node


class _Listing(NamedTuple):
    directory: nodes.Directory
    pid: int


class TopicFileSystem:
    """All operations, by node ID and file handle."""

    def __init__(self, context: MountContext) -> None:
        self.context = context
        self.root = RootDirectory(context)
        self.inodes = nodes.InodeTable(self.root)
        self._files: dict[int, _OpenFile] = {}
        self._listings: dict[int, _Listing] = {}
        self._snapshots: dict[int, Sequence[str]] = {}
        self._next_fh = itertools.count(1).__next__
        self._passing: OrderedDict[int, nodes.Node] = OrderedDict()

    @property
    def open_files(self) -> int:
        return len(self._files)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run background tasks (checks of waiting programs, measuring, lingering appends); at the end close files."""
        context = self.context
        engine, appending = context.engine, context.appending()
        nothing_waits = (
            event_loop_never_waits(cast("RemoteEngine", engine)) if engine.remote else nullcontext()
        )
        with nothing_waits:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(context.waiting.watch)
                nursery.start_soon(context.measuring.run)
                nursery.start_soon(appending.linger_buffer.run)
                if appending.remote_linger is not None:
                    nursery.start_soon(appending.remote_linger.run)
                try:
                    yield
                finally:
                    self.end_waiting()
                    with trio.CancelScope(shield=True):
                        async with trio.open_nursery() as releases:
                            for fh in list(self._files):
                                releases.start_soon(self.release, fh)
                        await self.context.blocking.run(self.root.topics.close)
                    nursery.cancel_scope.cancel()

    def end_waiting(self) -> None:
        """Answer every waiting read because the mount ends."""
        self.context.decoding.end()
        self.context.waiting.close()

    # Names

    def lookup(self, parent_id: int, name: bytes) -> Found:
        """Find a name, and count one reference of the kernel."""
        found = self.find(parent_id, name)
        self.remember(found.node)
        return found

    def find(self, parent_id: int, name: bytes) -> Found:
        """Find a name without counting a reference, so the caller may repeat the call or drop the result."""
        parent = self._directory(parent_id)
        try:
            node = self._lookup(parent, name)
            return Found(node, node.attributes())
        except Exception as error:
            raise self._report_error(_join(parent, name), error) from error

    async def find_or_offload(self, parent_id: int, name: bytes, pid: int = 0) -> Found:
        """Do the same as `lookup` for process `pid`, in a thread if it takes long."""
        found = await self.run_inline_or_in_thread(lambda: self.find(parent_id, name), pid)
        self.remember(found.node)
        return found

    def run_inline_or_in_thread(self, call: Callable[[], T], pid: int = 0) -> Awaitable[T]:
        """Run a usually fast call, such as a lookup, for process `pid`, in a thread if it takes long."""
        return self.context.blocking.run_inline_or_in_thread(call, self.root.program(pid))

    def _lookup(self, parent: nodes.Directory, name: bytes) -> nodes.Node:
        if len(name) > MAX_NAME:
            raise FileError(Refusal.NAME_TOO_LONG)
        if name == b".":
            return parent
        if name == b"..":
            return parent.parent or parent
        return parent.lookup(_text(name))

    def remember(self, node: nodes.Node) -> None:
        """Count a reference given to the kernel; evict old selector nodes if there are too many."""
        self.inodes.remember(node)
        if node.entry_timeout <= 1 and node.parent is not None:
            self._passing[node.node_id] = node
            self._passing.move_to_end(node.node_id)
            if len(self._passing) > MAX_SELECTOR_NODES:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        for _ in range(-(-MAX_SELECTOR_NODES // FORGET_BATCHES)):
            _, oldest = self._passing.popitem(last=False)
            if oldest.lookups and oldest.parent is not None:
                self.context.kernel.forget_name(oldest.parent.node_id, oldest.name)

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Subtract references that the kernel gave back."""
        self.inodes.forget(forgotten)

    async def mkdir(self, parent_id: int, name: bytes, pid: int = 0) -> Found:
        """Create a topic, partitions or a group; counts a reference as `lookup` does."""
        parent = self._directory(parent_id)
        with self._reporting(_join(parent, name)):
            node = await parent.make_directory(_text(name), pid)
        self.remember(node)
        return Found(node, node.attributes())

    async def rmdir(self, parent_id: int, name: bytes, pid: int = 0) -> None:
        parent = self._directory(parent_id)
        with self._reporting(_join(parent, name)):
            await parent.remove_directory(_text(name), pid)

    def refuse(self, parent_id: int, name: bytes, what: str) -> FileError:
        """Return the error for a change that a mount never makes: rename, link, create."""
        if self.context.engine.read_only:
            return FileError(Refusal.READ_ONLY)
        path = _join(self._directory(parent_id), name)
        return self._report_error(path, FileError(Refusal.NOT_PERMITTED, f"{what} is not possible here"))

    async def unlink(self, parent_id: int, name: bytes, pid: int = 0) -> None:
        """Remove a record of a queue. Raises FileError for any other file, because no other file can be removed."""
        parent = self._directory(parent_id)
        try:
            await parent.remove_file(_text(name), pid)
        except nodes.UnsupportedChangeError:
            raise self._unlinked(parent_id, name) from None
        except Exception as error:
            raise self._report_error(_join(parent, name), error) from error

    async def rename(self, parent_id: int, name: bytes, target_id: int, target: bytes, pid: int = 0) -> None:
        """Release a record of a queue. Raises FileError for any other file, because no other file can be renamed."""
        parent = self._directory(parent_id)
        if name != target:
            raise self.refuse(parent_id, name, "renaming")
        try:
            await parent.move_out(_text(name), self._directory(target_id), pid)
        except nodes.UnsupportedChangeError:
            raise self.refuse(parent_id, name, "renaming") from None
        except Exception as error:
            raise self._report_error(_join(parent, name), error) from error

    def _unlinked(self, parent_id: int, name: bytes) -> FileError:
        """Return the error for removing a file. `rm -r` gets an error per file, but only one per topic is reported."""
        if self.context.engine.read_only:
            return FileError(Refusal.READ_ONLY)
        topic, _, rest = _join(self._directory(parent_id), name).partition("/")
        if not rest:
            return FileError(Refusal.NOT_PERMITTED)
        reason = f"single files of a topic cannot be removed; {self.root.removal(topic)}"
        return self._report_error(topic, FileError(Refusal.NOT_PERMITTED, reason, reported=True))

    # Attributes

    async def getattr(self, node_id: int, pid: int = 0) -> nodes.Attributes:
        """Return exact attributes. Waits a limited time for an unknown size, and only while process `pid` waits."""
        node = self.inodes.get(node_id)
        try:
            if not node.measured:
                await node.measure(pid)
            return await self.run_inline_or_in_thread(node.attributes, pid)
        except Exception as error:
            raise self._report_error(node.path, error) from error

    async def setattr(
        self, node_id: int, change: AttributeChange, fh: int | None = None, pid: int = 0
    ) -> nodes.Attributes:
        """Accept new times; accept a truncation, which has no effect; refuse a new mode or owner.

        `fh` is the file handle if the change is an ftruncate(2).
        """
        node = self.inodes.get(node_id)
        file = None if fh is None else self._files.get(fh)
        with self._reporting(node.path):
            _accept(change, node, None if file is None else file.handle.end)
        return await self.getattr(node_id, pid)

    def readlink(self, node_id: int) -> str:
        node = self.inodes.get(node_id)
        if not isinstance(node, nodes.Link):
            raise FileError(Refusal.INVALID, reported=False)
        with self._reporting(node.path):
            return node.target()

    def getxattr(self, node_id: int, name: str) -> bytes:
        """Return one extended attribute; ENODATA if it is missing, E2BIG if it exceeds the kernel's limit."""
        if not name.startswith("user.kafka."):
            raise FileError(Refusal.NO_ATTRIBUTE)
        node = self.inodes.get(node_id)
        try:
            value = node.xattrs()[name]
        except KeyError:
            raise FileError(Refusal.NO_ATTRIBUTE) from None
        except Exception as error:
            raise self._report_error(node.path, error) from error
        if value is None:
            raise FileError(Refusal.ATTRIBUTE_TOO_LARGE)
        return value

    def listxattr(self, node_id: int) -> Sequence[str]:
        """Return the names of the extended attributes."""
        node = self.inodes.get(node_id)
        with self._reporting(node.path):
            return list(node.xattrs())

    def statfs(self) -> os.statvfs_result:
        """Return the space of the disks that hold the data directories."""
        with self._reporting(""):
            return disk_space(self.context.settings.directories)

    # Directories

    def opendir(self, node_id: int, pid: int = 0) -> int:
        """Open a directory for process `pid` (0 if it is not visible)."""
        listing = _Listing(self._directory(node_id), pid)
        fh = self._next_fh()
        self._listings[fh] = listing
        return fh

    def reader_of(self, fh: int) -> int:
        """Return the ID of the process for which `opendir` returned `fh`."""
        return self._listings[fh].pid

    def readdir(self, fh: int, start: int) -> Iterator[ListedEntry]:
        """Yield the entries from cookie `start` on; a name that was removed since the listing began is left out.

        The caller must count a reference with `remember` for each entry that it sends, except `.` and `..`.
        """
        directory = self._listings[fh].directory
        with self._reporting(directory.path):
            if start == 0 or fh not in self._snapshots:
                self._snapshots[fh] = [".", "..", *filter(_is_file_name, directory.names())]
        for index, name in enumerate(self._snapshots[fh][start:], start):
            try:
                node = self._lookup(directory, name.encode())
                found = Found(node, node.listed_attributes())
            except (FileError, StorageError, OSError):
                continue
            yield ListedEntry(name, found, index + 1)

    def releasedir(self, fh: int) -> None:
        self._listings.pop(fh, None)
        self._snapshots.pop(fh, None)

    # Files

    async def open(self, node_id: int, flags: int, pid: int) -> Opened:
        """Open a file for process `pid` (0 if it is not visible)."""
        node = self.inodes.get(node_id)
        try:
            handle = await node.open(access_of(flags), pid)
        except Exception as error:
            raise self._report_error(node.path, error) from error
        fh = self._next_fh()
        self._files[fh] = _OpenFile(handle, node)
        return Opened(fh, handle)

    def follows(self, fh: int) -> bool:
        """Return whether reads at the end of an open file wait for more."""
        file = self._files.get(fh)
        return file is not None and file.handle.follows

    async def read(self, fh: int, position: int, size: int) -> bytes | memoryview:
        """Read from an open file. Waits only if the file has no end, such as `follow`."""
        file = self._files[fh]
        try:
            return await file.handle.read(position, size)
        except Exception as error:
            raise self._report_error(file.node.path, error, deleted=True) from error

    async def write(self, fh: int, data: bytes, position: int = 0) -> int:
        """Write `data` at `position`."""
        file = self._files[fh]
        try:
            return await file.handle.write(position, data)
        except Exception as error:
            deleted = isinstance(error, UnknownGroupError)
            raise self._report_error(file.node.path, error, deleted=deleted) from error

    async def flush(self, fh: int) -> None:
        """Handle the close(2) of one of the file's descriptors."""
        file = self._files[fh]
        try:
            await file.handle.flush()
        except Exception as error:
            raise self._report_error(file.node.path, error) from error

    async def fsync(self, fh: int) -> None:
        """Flush written data to disk."""
        file = self._files[fh]
        with self._reporting(file.node.path):
            await file.handle.fsync()

    async def release(self, fh: int) -> None:
        """Close the file after its last descriptor was closed."""
        file = self._files.pop(fh)
        try:
            await file.handle.release()
        except Exception as error:
            raise self._report_error(file.node.path, error) from error

    def poll(self, fh: int, notify: Notify | None) -> int:
        """Return the events that are ready; `notify` is called once when they may have changed."""
        file = self._files.get(fh)
        if file is None:
            raise FileError(Refusal.NOT_OPEN)
        with self._reporting(file.node.path):
            return file.handle.poll(notify)

    # Helpers

    def _directory(self, node_id: int) -> nodes.Directory:
        node = self.inodes.get(node_id)
        if not isinstance(node, nodes.Directory):
            raise FileError(Refusal.NOT_A_DIRECTORY)
        return node

    @contextmanager
    def _reporting(self, path: str) -> Iterator[None]:
        """Report an error of the block, and raise it as a FileError. Common operations do this without a block, faster."""
        try:
            yield
        except Exception as error:
            raise self._report_error(path, error) from error

    def _report_error(self, path: str, error: Exception, *, deleted: bool = False) -> FileError:
        """Translate an error, and report its reason. `deleted`: ENOENT means that an open file's content is gone."""
        if isinstance(error, ThreadNeededError):
            raise error
        if not isinstance(error, (FileError, StorageError, OSError, LookupError, ValueError)):
            _LOGGER.error("%s: unexpected", path, exc_info=error)
        failure = file_error(error)
        if deleted and failure.number == errno.ENOENT:
            # The name exists, but the open file's content was deleted.
            failure = FileError(Refusal.GONE, failure.reason)
        if failure.reported:
            self.context.reports.error(path or "/", failure.reason or str(failure))
        return failure


def _accept(change: AttributeChange, node: nodes.Node, end: int | None) -> None:
    if change.mode or change.owner:
        raise FileError(Refusal.NOT_PERMITTED, "modes and owners cannot be changed; the mount sets them")
    if change.size is not None:
        if not isinstance(node, nodes.FileNode):
            raise FileError(Refusal.IS_A_DIRECTORY)
        node.truncate(change.size, end)


def _text(name: bytes) -> str:
    """Decode a name; bytes that are not UTF-8 never match a name, and stay visible in the message."""
    return name.decode("utf-8", "surrogateescape")


def _join(parent: nodes.Directory, name: bytes) -> str:
    shown = name.decode("utf-8", "backslashreplace")
    return f"{parent.path}/{shown}" if parent.path else shown


def disk_space(directories: Sequence[Path]) -> os.statvfs_result:
    """Return the summed space of the disks of `directories`, in the first disk's block size. Each disk counts once.

    A directory that cannot be queried is left out. Raises OSError if no directory can be queried. Without directories
    all figures are 0.
    """
    if not directories:
        return os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    figures: dict[int, os.statvfs_result] = {}
    error: OSError | None = None
    for directory in directories:
        try:
            figures.setdefault(directory.stat().st_dev, os.statvfs(directory))
        except OSError as refused:
            error = refused
    if not figures:
        assert error is not None
        raise error
    first, *others = figures.values()
    if not others:
        return first
    fields = list(first)
    for one in others:
        for index in (2, 3, 4):  # f_blocks, f_bfree, f_bavail
            fields[index] += one[index] * one.f_frsize // first.f_frsize
        for index in (5, 6, 7):  # f_files, f_ffree, f_favail
            fields[index] += one[index]
    return os.statvfs_result(fields)
