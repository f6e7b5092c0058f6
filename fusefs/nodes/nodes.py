"""The base classes of all directories, files and links of the tree, with plain values and without a kernel."""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from topicfs.fusefs.appending.flags import Access
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.following.waiting_reads import Program
from topicfs.fusefs.handle import Handle
from topicfs.fusefs.nodes.context import MountContext
from topicfs.storage.model import Timestamp

_LATEST_NANOSECONDS = 2**63 - 1
"""The latest time that stat shows, in April 2262: the kernel and the compiled request loop use 64-bit nanoseconds."""

DIRECTORY_MODE = stat.S_IFDIR | 0o755
LOG_MODE = stat.S_IFREG | 0o644
READ_MODE = stat.S_IFREG | 0o444
CONSUMING_MODE = stat.S_IFREG | 0o600
"""Mode of a file whose reading changes a group. Users who may not write the file may not read it (`shown_mode`)."""
LINK_MODE = stat.S_IFLNK | 0o777

READ_BLOCK = 512 * 1024
"""Number of bytes that cat, stdio, Python and cmp read at a time from a log. Each read is a request.

This number equals the size of a view's window. A larger read would not fit in the processor's cache.
"""

LONG_CACHE_SECONDS = 60.0
"""Seconds the kernel may cache attributes or names that never change without an invalidation."""


def nanoseconds(timestamp: Timestamp) -> int:
    """Return a timestamp for stat, clamped to 1970 … April 2262."""
    return min(max(timestamp, 0) * 1_000_000, _LATEST_NANOSECONDS)


class Attributes(NamedTuple):
    """The attributes that stat shows. The owner, links and blocks are computed by the same rules for all nodes."""

    mode: int
    size: int
    mtime_ns: int
    timeout: float
    """Seconds the kernel may cache the attributes."""
    ino: int
    """The inode number that stat shows. All successive nodes of a view have the same number."""
    block_size: int = 4096
    """Recommended read size (st_blksize)."""


class UnsupportedChangeError(FileError):
    """A change that a directory never makes. The filesystem adds the reason, and what the user can do instead."""

    def __init__(self) -> None:
        super().__init__(Refusal.NOT_PERMITTED)


class Node(ABC):
    """An object of the tree. Its lookup count is the number of references that the kernel holds."""

    __slots__ = ("context", "lookups", "name", "node_id", "parent")

    entry_timeout: float = LONG_CACHE_SECONDS
    """Seconds the kernel may cache that the node's name means this node."""

    def __init__(self, context: MountContext, parent: Directory | None, name: str) -> None:
        self.context = context
        self.parent = parent
        self.name = name
        self.node_id = 1 if parent is None else context.shared.new_id()
        self.lookups = 0

    @property
    def path(self) -> str:
        """Path in the mount, without a leading slash: `orders/0/log`."""
        if self.parent is None or self.parent.parent is None:
            return self.name
        return f"{self.parent.path}/{self.name}"

    def mtime_ns(self) -> int:
        """The time of the last change; for a node without its own time, the start of the mount."""
        return nanoseconds(self.context.started)

    def program(self, pid: int) -> Program:
        """Return the process `pid` (0 if not visible) as a program that uses this file."""
        return Program(self.context.waiting, pid, f"/{self.path}")

    @abstractmethod
    def attributes(self) -> Attributes:
        """Return the attributes for stat, as far as they are known."""

    def listed_attributes(self) -> Attributes:
        """Return the attributes for readdir, without any work. If their timeout is 0, the kernel calls stat."""
        return self.attributes()

    @property
    def measured(self) -> bool:
        """True if `attributes` are exact; if not, call `measure`."""
        return True

    async def measure(self, pid: int) -> None:  # noqa: B027 - most nodes have nothing to wait for
        """Wait a limited time, while process `pid` waits, until the attributes are exact. Raises FileError."""

    async def open(self, access: Access, pid: int) -> Handle:
        """Open for process `pid`. Raises FileError: EISDIR for a directory."""
        raise FileError(Refusal.IS_A_DIRECTORY)

    def is_current(self) -> bool:
        """Return whether the name still means this node. If not, the kernel must look the name up again."""
        return True

    def xattrs(self) -> Mapping[str, bytes | None]:
        """Return the extended attributes by full name. None stands for a value that exceeds the kernel's limit."""
        return {}

    def forgotten(self) -> None:
        """Clean up after the kernel has dropped its last reference to this node."""
        if self.parent is not None:
            self.parent.drop(self)


class Directory(Node):
    """A directory. It keeps the nodes that it made, so that a name always gives the same node."""

    __slots__ = ("_children",)

    def __init__(self, context: MountContext, parent: Directory | None, name: str) -> None:
        super().__init__(context, parent, name)
        self._children: dict[str, Node] = {}

    def program(self, pid: int) -> Program:
        return Program(self.context.waiting, pid, "")

    async def change(self, call: Callable[[], object], pid: int) -> None:
        """Run a change for process `pid` in a thread. Raises FileError and the engine's errors."""
        if self.context.engine.read_only:
            raise FileError(Refusal.READ_ONLY)
        await self.context.blocking.run(call, caller=self.program(pid))

    def attributes(self) -> Attributes:
        return Attributes(DIRECTORY_MODE, 0, self.mtime_ns(), LONG_CACHE_SECONDS, self.node_id)

    def lookup(self, name: str) -> Node:
        """Return the node that `name` means now. Raises FileError (ENOENT)."""
        known = self._children.get(name)
        if known is not None and known.is_current():
            return known
        node, present = self.make(name), self._children.get(name)
        if present is not None and present is not known:
            return present  # Another thread made the node meanwhile.
        self._children[name] = node
        return node

    @abstractmethod
    def make(self, name: str) -> Node:
        """Make the node of a name. Raises FileError (ENOENT)."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names that readdir lists."""

    def drop(self, node: Node) -> None:
        """Drop a node that the kernel has forgotten."""
        if self._children.get(node.name) is node:
            del self._children[node.name]

    async def make_directory(self, name: str, pid: int) -> Directory:
        """Handle mkdir(2) for process `pid`. Raises FileError."""
        raise FileError(
            Refusal.NOT_PERMITTED,
            f"{self.path}: directories can only be created at the top (topics) and in topics (partitions)",
        )

    async def remove_file(self, name: str, pid: int) -> None:
        """Handle unlink(2) for process `pid`. Raises FileError; UnsupportedChangeError if no file is removable."""
        raise UnsupportedChangeError

    async def move_out(self, name: str, target: Directory, pid: int) -> None:
        """Handle rename(2) of a file to another directory under the same name. Raises the errors of `remove_file`."""
        raise UnsupportedChangeError

    async def remove_directory(self, name: str, pid: int) -> None:
        """Handle rmdir(2) for process `pid`. Raises FileError."""
        self.lookup(name)
        raise FileError(
            Refusal.NOT_PERMITTED, "only topics can be removed, by rmdir at the top", reported=True
        )


class FileNode(Node):
    """A regular file."""

    __slots__ = ()
    endless = False
    """True if reads wait for future records."""

    @abstractmethod
    async def open(self, access: Access, pid: int) -> Handle: ...

    def truncate(self, size: int, end: int | None) -> None:
        """Change the size; `end` is the `Handle.end` of the calling program. Raises FileError."""
        raise FileError(Refusal.NOT_PERMITTED, "the file is read-only")


class Link(Node):
    """A symbolic link."""

    __slots__ = ()

    @abstractmethod
    def target(self) -> str:
        """Return the target of the link. Raises FileError (ENOENT)."""


def accept_truncation(size: int, present: int | None, end: int | None) -> None:
    """Check that truncate(2) does not change the size. Raises FileError (EPERM).

    `end` is the size that the calling program expects. If `end` is None, `size` must equal `present`, the current
    size (None: unknown).
    """
    if size != (present if end is None else end):
        raise FileError(Refusal.NOT_PERMITTED, "a log cannot be truncated, only appended to")


class InodeTable:
    """All nodes that the kernel knows: a node is in the table exactly while its lookup count is above 0."""

    def __init__(self, root: Node) -> None:
        root.lookups = 1
        self._nodes: dict[int, Node] = {root.node_id: root}

    def get(self, node_id: int) -> Node:
        """Return the node with that ID. Raises FileError (ESTALE)."""
        node = self._nodes.get(node_id)
        if node is None:
            raise FileError(Refusal.GONE)
        return node

    def remember(self, node: Node) -> None:
        """Count a reference, because the kernel was given the node."""
        node.lookups += 1
        self._nodes[node.node_id] = node

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Subtract references, and remove nodes that have no references left. The root always stays."""
        for node_id, count in forgotten:
            node = self._nodes.get(node_id)
            if node is None or node.parent is None:
                continue
            node.lookups -= count
            if node.lookups <= 0:
                del self._nodes[node_id]
                node.forgotten()
