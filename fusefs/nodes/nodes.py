"""The operations of every directory, file and link of the tree: they take names and return values, without a kernel."""

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
"""In April 2262: as far as 64 bits reach, in which the kernel and the compiled request loop count."""

DIRECTORY_MODE = stat.S_IFDIR | 0o755
LOG_MODE = stat.S_IFREG | 0o644
READ_MODE = stat.S_IFREG | 0o444
CONSUMING_MODE = stat.S_IFREG | 0o600
"""Mode of a file whose reading changes a group: those may read it who may also write it (`ownership.shown_mode`)."""
LINK_MODE = stat.S_IFLNK | 0o777

READ_BLOCK = 512 * 1024
"""Bytes; what cat, stdio, Python and cmp read at a time from a log, where each read is a request of its own.

As much as a window of a view holds: more would be fetched from memory that the processor has not near any more.
"""

LONG_CACHE_SECONDS = 60.0
"""Seconds the kernel may remember what only changes together with a word to it."""


def nanoseconds(timestamp: Timestamp) -> int:
    """Return a time as stat shows it: one before 1970 or after April 2262 becomes the nearest in between."""
    return min(max(timestamp, 0) * 1_000_000, _LATEST_NANOSECONDS)


class Attributes(NamedTuple):
    """The attributes of a node that stat shows; owner, links and blocks follow one rule for all nodes."""

    mode: int
    size: int
    mtime_ns: int
    timeout: float
    """Seconds for which the kernel may believe this without asking again."""
    ino: int
    """The number shown: one a view, whatever its generation."""
    block_size: int = 4096
    """Bytes that programs are advised to read at a time (st_blksize)."""


class UnsupportedChangeError(FileError):
    """A change that a directory never makes. The filesystem says for its path why not, and what is done instead."""

    def __init__(self) -> None:
        super().__init__(Refusal.NOT_PERMITTED)


class Node(ABC):
    """A named thing. Its lookup count is the number of references the kernel holds."""

    __slots__ = ("context", "lookups", "name", "node_id", "parent")

    entry_timeout: float = LONG_CACHE_SECONDS
    """Seconds for which the kernel may believe that the name means this node."""

    def __init__(self, context: MountContext, parent: Directory | None, name: str) -> None:
        self.context = context
        self.parent = parent
        self.name = name
        self.node_id = 1 if parent is None else context.shared.new_id()
        self.lookups = 0

    @property
    def path(self) -> str:
        """Path under the mount, without a leading slash: `orders/0/log`."""
        if self.parent is None or self.parent.parent is None:
            return self.name
        return f"{self.parent.path}/{self.name}"

    def mtime_ns(self) -> int:
        """The time of the last change; of a node without a time of its own, that at which the mount began."""
        return nanoseconds(self.context.started)

    def program(self, pid: int) -> Program:
        """The process `pid` (0 if it cannot be seen), which waits for something of the open file."""
        return Program(self.context.waiting, pid, f"/{self.path}")

    @abstractmethod
    def attributes(self) -> Attributes:
        """The attributes that stat shows, as far as they are known now."""

    def listed_attributes(self) -> Attributes:
        """The attributes that readdir passes on: those known without any work; a timeout of 0 makes stat ask again."""
        return self.attributes()

    @property
    def measured(self) -> bool:
        """True if `attributes` are exact; if not, `measure` may make them so."""
        return True

    async def measure(self, pid: int) -> None:  # noqa: B027 - most nodes have nothing to wait for
        """Wait, within a bound and no longer than process `pid`, until the attributes are exact. Raises FileError."""

    async def open(self, access: Access, pid: int) -> Handle:
        """Open for process `pid`. Raises FileError, of what is no file EISDIR."""
        raise FileError(Refusal.IS_A_DIRECTORY)

    def is_current(self) -> bool:
        """Return whether the name still means this node: looked up again, it may mean another."""
        return True

    def xattrs(self) -> Mapping[str, bytes | None]:
        """Extended attributes by their full names; None for a value of more bytes than a kernel takes."""
        return {}

    def forgotten(self) -> None:
        """The kernel holds no reference any more."""
        if self.parent is not None:
            self.parent.drop(self)


class Directory(Node):
    """A directory, which remembers the nodes it made so that a name keeps its node."""

    __slots__ = ("_children",)

    def __init__(self, context: MountContext, parent: Directory | None, name: str) -> None:
        super().__init__(context, parent, name)
        self._children: dict[str, Node] = {}

    def program(self, pid: int) -> Program:
        return Program(self.context.waiting, pid, "")

    async def change(self, call: Callable[[], object], pid: int) -> None:
        """Make a change for process `pid` (blocking). Raises FileError and the engine's errors."""
        if self.context.engine.read_only:
            raise FileError(Refusal.READ_ONLY)
        await self.context.appending.blocking.run(call, caller=self.program(pid))

    def attributes(self) -> Attributes:
        return Attributes(DIRECTORY_MODE, 0, self.mtime_ns(), LONG_CACHE_SECONDS, self.node_id)

    def lookup(self, name: str) -> Node:
        """Find what `name` means now. Raises FileError (ENOENT)."""
        known = self._children.get(name)
        if known is not None and known.is_current():
            return known
        node, present = self.make(name), self._children.get(name)
        if present is not None and present is not known:
            return present  # Another thread has made it meanwhile.
        self._children[name] = node
        return node

    @abstractmethod
    def make(self, name: str) -> Node:
        """Make the node of a name. Raises FileError (ENOENT)."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names that readdir lists."""

    def drop(self, node: Node) -> None:
        """Forget a node that the kernel has forgotten."""
        if self._children.get(node.name) is node:
            del self._children[node.name]

    async def make_directory(self, name: str, pid: int) -> Directory:
        """Do mkdir(2) for process `pid`. Raises FileError."""
        raise FileError(
            Refusal.NOT_PERMITTED, f"{self.path}: directories are made at the top (topics) and in topics"
        )

    async def remove_file(self, name: str, pid: int) -> None:
        """Do unlink(2) for process `pid`. Raises FileError; UnsupportedChangeError where no file is removed by itself."""
        raise UnsupportedChangeError

    async def move_out(self, name: str, target: Directory, pid: int) -> None:
        """Do rename(2) of a file to another directory, under its own name. Raises as `remove_file`."""
        raise UnsupportedChangeError

    async def remove_directory(self, name: str, pid: int) -> None:
        """Do rmdir(2) for process `pid`. Raises FileError."""
        self.lookup(name)
        raise FileError(Refusal.NOT_PERMITTED, "topics alone are removed, by rmdir at the top", reported=True)


class FileNode(Node):
    """A regular file."""

    __slots__ = ()

    @abstractmethod
    async def open(self, access: Access, pid: int) -> Handle: ...

    def truncate(self, size: int, end: int | None) -> None:
        """Change the size; `end` is `Handle.end` of the program that asks. Raises FileError."""
        raise FileError(Refusal.NOT_PERMITTED, "not to be written")


class Link(Node):
    """A symbolic link."""

    __slots__ = ()

    @abstractmethod
    def target(self) -> str:
        """The target of the link. Raises FileError (ENOENT)."""


def accept_truncation(size: int, present: int | None, end: int | None) -> None:
    """Accept truncate(2) of an append-only file only to the size that it has: `end` if given, else `present` (None: unknown).

    Raises FileError (EPERM).
    """
    if size != (present if end is None else end):
        raise FileError(Refusal.NOT_PERMITTED, "a log is not cut; it takes lines at its end")


class InodeTable:
    """Every node that the kernel knows. Invariant: one stands here exactly while its lookup count is above 0."""

    def __init__(self, root: Node) -> None:
        root.lookups = 1
        self._nodes: dict[int, Node] = {root.node_id: root}

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, node_id: int) -> Node:
        """The node of that number. Raises FileError (ESTALE)."""
        node = self._nodes.get(node_id)
        if node is None:
            raise FileError(Refusal.GONE)
        return node

    def remember(self, node: Node) -> None:
        """Count one lookup: the kernel was told of the node."""
        node.lookups += 1
        self._nodes[node.node_id] = node

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Decrease lookup counts, each by its number, and let go of nodes at 0. The root stays."""
        for node_id, count in forgotten:
            node = self._nodes.get(node_id)
            if node is None or node.parent is None:
                continue
            node.lookups -= count
            if node.lookups <= 0:
                del self._nodes[node_id]
                node.forgotten()
