"""A mount without a kernel over a remote engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import trio
import trio.testing

from tests.doubles.mount_client import mounted, refused
from tests.doubles.remote_client import TIME, Program
from tests.doubles.stalling_engine import StallingEngine
from topicfs.fusefs.processes.signals import Look


@pytest.fixture
async def engine() -> AsyncIterator[StallingEngine]:
    """A remote engine with `orders`, whose partition has the records a, b and c; at the end waiting calls return."""
    engine = StallingEngine()
    engine.make("orders").all[0].arrive(b"a", b"b", b"c", time=TIME)
    yield engine
    engine.close()


@pytest.fixture
def ending() -> set[int]:
    """The process IDs of programs that have a pending signal."""
    return set()


@pytest.fixture
def look(ending: set[int]) -> Callable[[int], Look]:
    """Return a function that returns the state of a process, with a pending signal if it is in `ending`."""
    return lambda pid: Look(1, stuck=False, pending=1 << 1 if pid in ending else 0)


async def killed_in_write(client: Program, fh: int, data: bytes, ending: set[int]) -> None:
    """Kill the program while its write waits for the engine, and check that the write fails with EINTR."""

    async def write() -> None:
        with refused("EINTR"):
            await client.fs.write(fh, data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        ending.add(1)


@pytest.fixture
async def client(engine: StallingEngine) -> AsyncIterator[Program]:
    async with mounted(engine, None) as client:
        yield Program(client)
