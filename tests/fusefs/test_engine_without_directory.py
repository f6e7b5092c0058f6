"""The mount over an engine that has no directory: sizes are unknown, and there are no segments."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.doubles.memory_engine import MemoryEngine
from tests.doubles.mount_client import MountClient, mounted, refused
from topicfs.fusefs.files.status import engine_lines


@pytest.fixture
async def client() -> AsyncIterator[MountClient]:
    """A mount of the topic `orders` with the records a, b and c."""
    engine = MemoryEngine("broker 2 does not answer")
    engine.create_topic("orders").all[0].add(b"a", b"b", b"c")
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


async def test_the_size_of_the_file_system_is_not_known(client: MountClient):
    """statfs(2) gives 0 blocks, because there is no disk to ask."""
    assert 0 == client.filesystem.statfs().f_blocks
