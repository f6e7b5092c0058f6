"""The mount over a remote engine: the event loop's thread makes only calls of the engine that need no broker's answer.

The test's engine fails the test if a call waits in the event loop's thread; it caches no answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
import trio
import trio.testing

from tests.doubles.mount_client import APPEND, mounted, refused
from tests.doubles.remote_client import TIME, Program, waiting
from tests.doubles.stalling_engine import StallingEngine
from tests.fusefs.remote.conftest import killed_in_write
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.processes.signals import Look
from topicfs.fusefs.threads.remote import REMOTE_THREADS
from topicfs.storage.errors import PartitionOfflineError

T = TypeVar("T")


async def everything_prompt(client: Program) -> None:
    """Make the requests for which the engine needs no broker's answer, and check that none of them waits."""
    assert ["@groups", "@status", "orders"] == await client.list()
    assert ["config", "status", "0"] == await client.list("orders")
    names = await client.list("orders/0")
    assert {"log", "earliest", "latest", "start", "state", "status"} <= set(names)
    assert "segments" not in names
    for path in ("", "@status", "orders", "orders/config", "orders/status", "orders/0"):
        await client.stat(path)
    for name in names:
        await client.stat(f"orders/0/{name}")
    assert (await client.cat("@status")).startswith(b"pid ")
    assert b"0\n" == await client.cat("orders/0/start")
    for name in ("log", "log.json", "follow"):
        await client.fs.release(await client.open(f"orders/0/{name}"))


# Requests that do not call the engine


async def test_names_attributes_and_opening_ask_nothing(client: Program, engine: StallingEngine):
    """Listings, attributes and open(2) of files do not call the engine."""
    await everything_prompt(client)
    assert not engine.line.calls


async def test_requests_without_a_call_are_answered_while_others_wait(
    client: Program, engine: StallingEngine
):
    """Requests that need no answer are answered even while more programs than threads wait for the engine."""
    engine.line.stall()
    async with trio.open_nursery() as nursery:
        for offset in range(REMOTE_THREADS + 10):
            nursery.start_soon(failing, client.cat, f"orders/0/@{offset}")
        await waiting(engine, REMOTE_THREADS)
        await everything_prompt(client)
        assert REMOTE_THREADS == engine.line.calls.total() == engine.line.max_waiting
        engine.line.go_on()


async def failing(call: Callable[..., object], *arguments: object) -> None:
    """Make a call, and ignore a FileError."""
    with contextlib.suppress(FileError):
        await call(*arguments)  # type: ignore[misc]


# Requests that call the engine


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"b", "1"),
        (b"b\nc\n", "1-2"),
        (b"c", f"@{TIME + 2}"),
        (b"c\n", "2-"),
        (b"b\nc\n", "-2"),
        (b'"payload":"b"', "1.json"),
        (b"a\nb\nc\n", "log"),
        (b"state online\n", "status"),
        (b"online\n", "state"),
    ],
)
async def test_content_is_asked_for_and_comes(client: Program, content: bytes, name: str):
    """Reads return the content from the engine, even if the engine caches no answer."""
    assert content in await client.cat(f"orders/0/{name}")


@pytest.mark.parametrize(("target", "name"), [("0", "earliest"), ("2", "latest"), ("2.json", "latest.json")])
async def test_links_are_asked_for_when_they_are_read(client: Program, engine: StallingEngine, target, name):
    """The engine is asked for the target of a link only when the link is read; until then its size is 0."""
    assert 0 == (await client.stat(f"orders/0/{name}")).size
    assert not engine.line.calls
    assert target == await client.readlink(f"orders/0/{name}")


async def test_an_empty_partition_has_no_links(client: Program, engine: StallingEngine):
    """An empty partition has no links; this is known from its bounds without a call."""
    engine.make("empty")
    assert "latest" not in await client.list("empty/0")
    with refused("ENOENT"):
        await client.lookup("empty/0/latest")
    engine.partition("empty", 0).arrive(b"x")
    assert "latest" in await client.list("empty/0")
    assert "0" == await client.readlink("empty/0/latest")
    assert {"read"} == set(engine.line.calls)


async def test_settings_attributes_and_the_topics_own_files(client: Program):
    """Settings, extended attributes and the files of a topic come from the engine."""
    assert b"# cleanup.policy=delete\n" in await client.cat("orders/config")
    assert b"partition 0 log_start_offset 0 high_watermark 3 state online\n" in await client.cat(
        "orders/status"
    )
    assert b"a\nb\nc\n" == await client.cat("orders/log")
    assert b"b\nc\n" == await client.cat(f"orders/@{TIME + 1}-")
    node_id = (await client.lookup("orders/0/1")).node_id
    assert b"%d" % (TIME + 1) == await client.fs.run_inline_or_in_thread(
        lambda: client.fs.getxattr(node_id, "user.kafka.timestamp")
    )


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
async def test_lines_are_appended_in_threads(engine: StallingEngine, acks: Acks):
    """Lines are appended in threads with any acks, because the engine decides when a write is answered."""
    async with mounted(engine, None, acks=acks) as mount:
        client = Program(mount)
        await client.append("orders/0/log", b"d\ne\n")
        await client.append("orders/log", b"f\nbegun")
        assert b"a\nb\nc\nd\ne\nf\nbegun\n" == await client.cat("orders/0/log")
    assert 3 == engine.line.calls["append"]


async def test_topics_and_settings_are_changed_in_threads(engine: StallingEngine):
    """Topics and settings are changed in threads, and the change has been made when the call returns."""
    async with mounted(engine, None, allow_delete=True) as mount:
        client = Program(mount)
        await client.fs.mkdir(client.fs.root.node_id, b"events")
        await client.fs.mkdir((await client.lookup("events")).node_id, b"1")
        assert ["config", "status", "0", "1"] == await client.list("events")
        await client.append("events/config", b"retention.ms=7\n")
        await client.append("orders/0/start", b"2\n")
        assert b"c\n" == await client.cat("orders/0/log")
        await client.append("orders/0/state", b"online\n")
        await client.fs.rmdir(client.fs.root.node_id, b"events")
        assert ["@groups", "@status", "orders"] == await client.list()
    asked = {
        "create_topic",
        "add_partitions",
        "alter_config",
        "delete_records",
        "reopen_partition",
        "delete_topic",
    }
    assert asked <= set(engine.line.calls)


async def test_a_follower_calls_the_engine_only_after_a_record_has_arrived(
    client: Program, engine: StallingEngine
):
    """A reader of `follow` calls the engine only after a record has arrived."""
    fh = await client.open("orders/0/follow")
    seen: list[bytes] = []

    async def read() -> None:
        seen.append(bytes(await client.fs.read(fh, 0, 100)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert not engine.line.calls
        engine.partition("orders", 0).arrive(b"d")
    assert [b"d\n"] == seen
    await client.fs.release(fh)


async def test_a_follower_of_a_topic_gets_the_partitions_that_answer(client: Program, engine: StallingEngine):
    """A reader of a topic's `follow` gets the records of the partitions that answer, without waiting for others."""
    engine.make("events", partitions=2)
    fh = await client.open("events/follow")
    engine.partition("events", 0).arrive(b"zero")
    engine.partition("events", 1).arrive(b"one")
    got = bytes(await client.fs.read(fh, 0, 100))
    got += bytes(await client.fs.read(fh, len(got), 100))
    assert {b"zero", b"one"} == set(got.split())
    await client.fs.release(fh)


async def test_an_error_is_reported_to_the_request_that_asked(client: Program, engine: StallingEngine):
    """An error of the engine fails the request that got it; the next request asks the engine again."""
    engine.line.error = PartitionOfflineError("orders-0: no broker answers")
    with refused("EIO") as refusal:
        await client.cat("orders/0/log")
    assert "no broker answers" in refusal.reason
    with refused("EIO"):
        await client.append("orders/0/log", b"d\n")
    await everything_prompt(client)
    engine.line.error = None
    assert b"a\nb\nc\n" == await client.cat("orders/0/log")


async def test_a_request_that_asks_runs_in_a_thread_as_a_whole(client: Program, engine: StallingEngine):
    """If a request calls the engine, the request runs completely in one thread. An answer does not restart it."""
    partition = engine.partition("orders", 0)
    count = 32
    for number in range(count):
        partition.arrive(b"x" * 2**20 if number % 2 else b"y")
    await client.stat(f"orders/0/-{count}")
    assert engine.line.calls["read"] < 3 * count


# The end of programs and of the mount


@pytest.fixture
async def two(engine: StallingEngine, look: Callable[[int], Look]) -> AsyncIterator[tuple[Program, Program]]:
    """Two programs on one mount."""
    async with mounted(engine, None, look=look) as client:
        yield Program(client, 1), Program(client, 2)


@pytest.mark.parametrize(
    "path",
    ["orders/0/@1", "orders/0/log", "orders/0/status", "orders/config", "orders/log", "orders/0/latest"],
)
async def test_a_program_that_ends_waits_no_longer(two, engine: StallingEngine, ending: set[int], path: str):
    """If a program is killed, its waiting call fails with EINTR; another program that waits gets its answer."""
    engine.line.stall()
    first, second = two
    found: list[object] = []

    async def ends() -> None:
        with refused("EINTR"):
            await (first.readlink(path) if path.endswith("latest") else first.cat(path))
        found.append("ended")

    async def waits() -> None:
        found.append(await (second.readlink(path) if path.endswith("latest") else second.cat(path)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        nursery.start_soon(ends)
        await trio.testing.wait_all_tasks_blocked()
        ending.add(1)
        while not found:
            await trio.sleep(0.01)
        assert ["ended"] == found
        engine.line.go_on()
    assert 2 == len(found)


async def test_a_write_that_is_interrupted_is_not_known_to_be_kept(
    two, engine: StallingEngine, ending: set[int]
):
    """An interrupted write may or may not have stored its lines, so later writes to its file fail with this reason."""
    first, second = two
    fh = await first.open("orders/0/log", APPEND)
    engine.line.stall()
    await killed_in_write(first, fh, b"d\n", ending)
    engine.line.go_on()
    for call in (lambda: first.fs.write(fh, b"e\n"), lambda: first.fs.fsync(fh)):
        with refused("EIO") as refusal:
            await call()
        assert "unknown" in refusal.reason
    await first.client.close(fh)
    assert "orders/0/log: interrupted: unknown whether" in first.client.reports
    while engine.partition("orders", 0).log_end_offset < 4:
        await trio.sleep(0.001)
    assert b"a\nb\nc\nd\n" == await second.cat("orders/0/log")


async def test_changes_end_with_their_program(two, engine: StallingEngine, ending: set[int]):
    """mkdir(2) fails with EINTR if its program is killed."""
    first, _ = two
    root = first.fs.root.node_id
    await first.lookup("orders")
    engine.line.stall()
    ending.add(1)
    with refused("EINTR"):
        await first.fs.mkdir(root, b"events", 1)
    with refused("EINTR"):
        await first.fs.mkdir((await first.lookup("orders")).node_id, b"3", 1)


async def test_the_end_of_a_mount_waits_for_no_answer(engine: StallingEngine):
    """When the mount ends, waiting requests fail with ENOTCONN. Lines whose append has no answer are reported."""
    async with mounted(engine, None) as mount, trio.open_nursery() as nursery:
        client = Program(mount)
        fh = await client.open("orders/0/log", APPEND)
        await client.fs.write(fh, b"begun")
        engine.line.stall()

        async def cat(path: str) -> None:
            with refused("ENOTCONN"):
                await client.cat(path)

        async def append() -> None:
            with refused("ENOTCONN"):
                await client.append("orders/0/log", b"x\n")

        for path in ("orders/0/0", "orders/0/log", "orders/0/status", "orders/log"):
            nursery.start_soon(cat, path)
        nursery.start_soon(append)
        await trio.testing.wait_all_tasks_blocked()
        client.fs.end_waiting()
    assert "the last line was not confirmed and may be stored or lost" in mount.reports
    assert engine.line.waiting > 0
