"""acks=0 over a remote engine: writes are answered immediately, and threads append the lines in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import trio
import trio.testing

from tests.doubles.mount_client import APPEND, MountClient, mounted, refused
from tests.doubles.remote_client import Program
from tests.doubles.stalling_engine import LONGEST_SECONDS, StallingEngine
from tests.fusefs.remote.conftest import killed_in_write
from topicfs.fusefs.appending import linger_buffer
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.processes.signals import Look
from topicfs.storage.errors import PartitionOfflineError


@pytest.fixture
async def client(engine: StallingEngine, look: Callable[[int], Look]) -> AsyncIterator[Program]:
    async with mounted(engine, None, acks=Acks.NONE, look=look) as mount:
        yield Program(mount, 1)


async def test_writes_are_answered_while_nothing_is_appended(client: Program, engine: StallingEngine) -> None:
    """Lines that several files write during an append are in the next append, in the order of the writes."""
    engine.line.stall("append")
    first, second = [await client.open("orders/0/log", APPEND) for _ in range(2)]
    for number in range(10):
        await client.fs.write((first, second)[number % 2], b"%d\n" % number)
    engine.line.go_on()
    await client.fs.fsync(first)
    assert b"a\nb\nc\n0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n" == await client.cat("orders/0/log")
    assert engine.line.calls["append"] <= 2


async def test_close_appends_an_unfinished_line_after_the_waiting_lines(
    client: Program, engine: StallingEngine
) -> None:
    """close(2) appends the unfinished line after the lines that wait in the buffer."""
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, b"d\nbeg")
    await client.fs.write(fh, b"un")
    await client.client.close(fh)
    assert b"a\nb\nc\nd\nbegun\n" == await client.cat("orders/0/log")
    assert 2 == engine.line.calls["append"]


async def test_a_failure_is_reported_by_the_next_call(client: Program, engine: StallingEngine) -> None:
    """A failed append fails the next call on each file that wrote its lines; for closed files, `@status` has a line."""
    engine.line.stall("append")
    written, closed = [await client.open("orders/0/log", APPEND) for _ in range(2)]
    for fh in (written, closed):
        await client.fs.write(fh, b"lost\n")
    await client.fs.release(closed)
    engine.line.error = PartitionOfflineError("no answer")
    engine.line.go_on()
    with refused("EIO") as refusal:
        await client.fs.fsync(written)
    assert "no answer" in refusal.reason
    assert "lines lost when the file was closed" in client.client.reports


async def test_lines_that_cannot_be_parsed_are_refused_at_once(
    client: Program, engine: StallingEngine
) -> None:
    """A line that cannot be parsed fails the write that contains it."""
    fh = await client.open("orders/0/log.json", APPEND)
    with refused("EINVAL"):
        await client.fs.write(fh, b"nonsense\n")
    assert 0 == engine.line.calls["append"]


async def test_a_write_waits_while_the_buffer_is_full(
    client: Program, engine: StallingEngine, ending: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write waits while the buffer is full. If the program is killed meanwhile, later writes to the file fail."""
    monkeypatch.setattr(linger_buffer, "MAX_GATHERED_BYTES", 1)
    engine.line.stall("append")
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, b"d\n")
    while not engine.line.waiting:
        await trio.sleep(0.001)
    await client.fs.write(fh, b"e\n")
    await killed_in_write(client, fh, b"f\n", ending)
    ending.clear()
    with refused("EINTR"):
        await client.fs.write(fh, b"g\n")
    engine.line.go_on()
    await client.append("orders/0/log", b"h\n")
    while engine.partition("orders", 0).log_end_offset < 6:
        await trio.sleep(0.001)
    assert b"a\nb\nc\nd\ne\nh\n" == await client.cat("orders/0/log")


async def test_the_end_of_a_mount_appends_what_waits(engine: StallingEngine) -> None:
    """When the mount ends, the waiting lines are appended."""
    async with mounted(engine, None, acks=Acks.NONE) as mount:
        await Program(mount).append("orders/0/log", b"d\ne\n")
    assert 5 == engine.partition("orders", 0).log_end_offset


async def test_nothing_gathers_any_longer_when_the_mount_ends(engine: StallingEngine) -> None:
    """The end of the mount does not wait for the linger time."""
    async with mounted(engine, None, acks=Acks.NONE) as mount:
        gather_for_an_hour(mount)
        await Program(mount).append("orders/0/log", b"d\ne\n")
    assert 5 == engine.partition("orders", 0).log_end_offset


async def test_nothing_gathers_any_longer_for_an_fsync(client: Program, engine: StallingEngine) -> None:
    """fsync(2) does not wait for the linger time."""
    gather_for_an_hour(client.client)
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, b"d\n")
    with trio.fail_after(LONGEST_SECONDS):
        await client.fs.fsync(fh)
    assert 4 == engine.partition("orders", 0).log_end_offset


def gather_for_an_hour(mount: MountClient) -> None:
    gathering = mount.context.appending().remote_linger
    assert gathering is not None
    gathering._linger_seconds = 3600.0


async def test_the_end_of_a_mount_waits_a_moment_only(
    engine: StallingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the engine does not answer, the mount's end waits DRAIN_TIMEOUT_SECONDS and reports lines that may be lost."""
    monkeypatch.setattr(linger_buffer, "DRAIN_TIMEOUT_SECONDS", 0.05)
    async with mounted(engine, None, acks=Acks.NONE) as mount:
        engine.line.stall("append")
        await Program(mount).append("orders/0/log", b"d\n")
    assert "orders/0/log: the last lines were not confirmed and may be stored or lost" in mount.reports
