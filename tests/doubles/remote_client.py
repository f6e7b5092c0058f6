"""A program that uses a mount of a remote engine, without a kernel. A lookup may wait for the cluster."""

from __future__ import annotations

import os
from functools import partial

import trio
import trio.testing

from tests.doubles.mount_client import APPEND, PID, MountClient
from tests.doubles.stalling_engine import LONGEST_SECONDS, StallingEngine
from topicfs.fusefs.nodes.nodes import Attributes, Node

TIME = 1_700_000_000_000
"""The records a, b and c all have this timestamp, in milliseconds."""


class Program:
    """The system calls of one program as the kernel passes them on; a lookup may send a request to the cluster."""

    def __init__(self, client: MountClient, pid: int = PID) -> None:
        self.client = client
        self.fs = client.filesystem
        self.pid = pid

    async def lookup(self, path: str) -> Node:
        node: Node = self.fs.root
        for name in path.split("/") if path else ():
            parent_id, encoded = node.node_id, name.encode()
            look_up = partial(self.fs.find, parent_id, encoded)
            node = (await self.fs.run_inline_or_in_thread(look_up, self.pid)).node
            self.fs.remember(node)
        return node

    async def list(self, path: str = "") -> list[str]:
        fh = self.fs.opendir((await self.lookup(path)).node_id)
        names = await self.fs.run_inline_or_in_thread(
            lambda: [entry.name for entry in self.fs.readdir(fh, 0)]
        )
        self.fs.releasedir(fh)
        return names[2:]

    async def stat(self, path: str) -> Attributes:
        return await self.fs.getattr((await self.lookup(path)).node_id, self.pid)

    async def readlink(self, path: str) -> str:
        node_id = (await self.lookup(path)).node_id
        return await self.fs.run_inline_or_in_thread(lambda: self.fs.readlink(node_id), self.pid)

    async def open(self, path: str, flags: int = os.O_RDONLY) -> int:
        return (await self.fs.open((await self.lookup(path)).node_id, flags, self.pid)).fh

    async def cat(self, path: str) -> bytes:
        fh = await self.open(path)
        try:
            return await self.client.read_on(fh)
        finally:
            await self.fs.release(fh)

    async def append(self, path: str, data: bytes) -> None:
        fh = await self.open(path, APPEND)
        try:
            await self.fs.write(fh, data)
        finally:
            await self.client.close(fh)


async def waiting(engine: StallingEngine, calls: int = 1) -> None:
    """Wait until the engine has at least `calls` calls that wait for answers."""
    with trio.fail_after(LONGEST_SECONDS):
        while engine.line.waiting < calls:
            await trio.sleep(0.001)
