"""The files and directories of a simulated disk, as the running system sees them and as they are on the platters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias, TypeVar

from topicfs.storage.model import Buffer

BLOCK_BYTES = 512


@dataclass(eq=False)
class Content:
    """A file's bytes as the running system sees them, and as they are on the platters."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    lost: set[int] = field(default_factory=set)
    """Blocks that a failed sync dropped. The system considers them clean, and writes a block only after its next
    change.
    """
    allocated: set[int] = field(default_factory=set)
    modified: int = 0
    links: int = 1
    """The number of names. If a file has no name, its blocks count as free, even while the file is open. A real disk
    frees the blocks only after the file was closed.
    """

    def write(self, data: Buffer, position: int) -> None:
        end = position + len(data)
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = data
        self.lost -= set(blocks(position, end))

    def on_platter(self) -> bytes:
        """Return the content that the platters have after a successful sync."""
        if not self.lost:
            return bytes(self.data)
        written = bytearray(self.data)
        for block in self.lost:
            _copy_block(self.synced, written, block)
        return bytes(written)

    def dirty_blocks(self) -> set[int]:
        if self.data == self.synced:
            return set()
        size = max(len(self.data), len(self.synced))
        return {
            block
            for block in blocks(0, size)
            if self.data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
            != self.synced[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
        }

    def crash(self, random: Random, keep: float) -> None:
        """Keep the synced content. A block that was changed later keeps its new version with probability `keep`."""
        new = self.data
        if new == self.synced:
            self.lost = set()
            return
        shortest, longest = sorted((len(self.synced), len(new)))
        size = len(new) if random.random() < keep else random.randint(shortest, longest)
        survived = bytearray(self.synced[:size].ljust(size, b"\0"))
        for block in self.dirty_blocks() - self.lost:
            if random.random() < keep:
                _copy_block(new, survived, block)
        self.data = survived
        self.synced = bytes(survived)
        self.lost = set()


@dataclass(eq=False)
class Directory:
    """A directory's present names, its names on the platters, and the changes between the two, in order."""

    names: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)
    modified: int = 0
    """The number of changes, so that each change results in a new modification time."""

    def change(self, names: dict[str, Node | None]) -> None:
        _apply(self.names, names)
        self.modified += 1
        self.changes.append(names)

    def sync(self) -> None:
        self.synced = dict(self.names)
        self.changes.clear()

    def crash(self, random: Random, keep: float) -> None:
        """Keep the synced names and the oldest of the later changes, about the share `keep` of these changes."""
        self.names = dict(self.synced)
        survivors = sum(random.random() < keep for _ in self.changes)
        for change in self.changes[:survivors]:
            _apply(self.names, change)
        self.sync()

    def __deepcopy__(self, memo: dict[int, Node | None]) -> Directory:
        return _copied(self, memo)


Node: TypeAlias = Content | Directory
AnyNode = TypeVar("AnyNode", Content, Directory)


def _copied(node: AnyNode, memo: dict[int, Node | None]) -> AnyNode:
    """Copy a node and all nodes below it; copy a node with several names once. `memo` is that of `copy.deepcopy`."""
    if id(node) in memo:
        return memo[id(node)]  # type: ignore[return-value] # a copy is of its original's kind
    if isinstance(node, Content):
        content = replace(node, data=node.data[:], lost=set(node.lost), allocated=set(node.allocated))
        memo[id(node)] = content
        return content
    made = memo[id(node)] = Directory(modified=node.modified)
    made.names, made.synced, *made.changes = (
        {name: one if one is None else _copied(one, memo) for name, one in names.items()}
        for names in (node.names, node.synced, *node.changes)
    )
    return made


def blocks(start: int, end: int) -> range:
    """Return the numbers of the blocks that [start, end) touches."""
    return range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)) if end > start else range(0)


def _copy_block(source: bytes | bytearray, target: bytearray, block: int) -> None:
    start = block * BLOCK_BYTES
    end = min(start + BLOCK_BYTES, len(target))
    if start < end:
        target[start:end] = source[start:end].ljust(end - start, b"\0")


def _apply(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
