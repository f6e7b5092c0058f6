"""Numbers of nodes, and the kernel's references to them."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from topicfs.fusefs.errors import FileError
from topicfs.fusefs.nodes.nodes import Node


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
            raise FileError(errno.ESTALE)
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
