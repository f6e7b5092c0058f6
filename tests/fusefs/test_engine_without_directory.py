"""The mount over an engine that has no directory: sizes are unknown, and there are no segments."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from tests.doubles.memory_engine import MemoryEngine
from tests.doubles.mount_client import MountClient, mounted, refused
from topicfs.fusefs.files.status import engine_lines
from topicfs.fusefs.nodes.nodes import Link

TIME = 1_700_000_000_000


@pytest.fixture
async def client() -> AsyncIterator[MountClient]:
    """A mount of the topic `orders` with the records a, b and c, one millisecond apart."""
    engine = MemoryEngine("broker 2 does not answer")
    engine.create_topic("orders").all[0].add(b"a", b"b", b"c", time=TIME)
    async with mounted(engine, None) as client:
        yield client


async def test_names_without_segments(client: MountClient):
    """The directory `segments` is neither listed nor found by its name."""
    assert ["@groups", "@status", "orders"] == client.list()
    assert ["config", "status", "0"] == client.list("orders")
    names = client.list("orders/0")
    assert {"log", "earliest", "latest", "start", "state", "status"} <= set(names)
    assert "segments" not in names
    with refused("ENOENT"):
        client.lookup("orders/0/segments")


async def test_an_engine_without_queues_refuses_their_directory(client: MountClient):
    """A lookup of `@queues` gives EOPNOTSUPP and a reason; an empty directory would mean that no queue exists."""
    with refused("ENOTSUP"):
        client.lookup("@queues")
    (line,) = client.context.reports.lines()
    assert "an engine in memory has none" in line


async def test_sizes_are_those_of_the_rendering(client: MountClient):
    """stat(2) of a log or a range gives the number of bytes that reading it returns."""
    assert 6 == (await client.stat("orders/0/log")).size
    assert b"a\nb\nc\n" == await client.cat("orders/0/log")
    assert 4 == (await client.stat("orders/0/1-2")).size


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"b", "1"),
        (b"b\nc\n", "1-2"),
        (b"c", f"@{TIME + 2}"),
        (b"a", "earliest"),
        (b"c", "latest"),
        (b'"payload":"b"', "1.json"),
    ],
)
async def test_lookups_by_offset_and_by_time(client: MountClient, content: bytes, name: str):
    """Each selector, by offset or by time, finds its records."""
    node = client.lookup(f"orders/0/{name}")
    found = await client.cat(f"orders/0/{node.target() if isinstance(node, Link) else name}")
    assert content in found


async def test_an_append_shows_in_the_log_and_to_a_reader_that_follows(client: MountClient):
    """An appended record appears in the partition's log, in the topic's log, and in reads of `follow`."""
    following = await client.open("orders/0/follow")
    async with trio.open_nursery() as nursery:
        seen: list[bytes | memoryview] = []

        async def read() -> None:
            seen.append(await client.filesystem.read(following, 0, 100))

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await client.append("orders/0/log", b"d\n")
    await client.close(following)
    await client.append("orders/log", b"e\n")

    assert [b"d\n"] == [bytes(data) for data in seen]
    assert b"a\nb\nc\nd\ne\n" == await client.cat("orders/0/log")
    assert b"a\nb\nc\nd\ne\n" == await client.cat("orders/log")


async def test_status_leaves_out_what_is_not_known(client: MountClient):
    """The status of a partition has no lines about segments, sizes and a directory."""
    for path in ("orders/0/status", "orders/status"):
        lines = (await client.cat(path)).decode().splitlines()
        names = {line.split()[0] for line in lines}
        assert not names & {"segments", "log_bytes", "index_bytes", "directory"}
    partition = (await client.cat("orders/0/status")).decode()
    assert "state online\nlog_start_offset 0\n" in partition
    assert "log_end_offset 3\n" in partition
    assert b"online\n" == await client.cat("orders/0/state")


async def test_the_daemons_status_has_the_warnings_of_the_engine(client: MountClient):
    """The daemon's status has the warnings of the engine, and no line about a directory."""
    lines = (await client.cat("@status")).decode().splitlines()
    assert "warning broker 2 does not answer" in lines
    assert ["mode read-write", "topics 1", "partitions 1"] == engine_lines(client.engine)


async def test_damage_is_reported_at_the_partition(client: MountClient):
    """Damage is reported with the name of the partition, because there is no file to name."""
    client.engine.partition("orders", 0).damage(0)
    with refused("EIO") as refusal:
        await client.cat("orders/0/1")
    assert refusal.reason.startswith("orders-0: ")


async def test_topics_come_and_go(client: MountClient):
    """mkdir(2) creates topics and partitions, rmdir(2) removes an empty topic, and statfs(2) works."""
    await client.mkdir("events")
    await client.mkdir("events/1")
    assert ["config", "status", "0", "1"] == client.list("events")
    await client.rmdir("events")
    assert ["@groups", "@status", "orders"] == client.list()
    assert 0 == client.filesystem.statfs().f_blocks
