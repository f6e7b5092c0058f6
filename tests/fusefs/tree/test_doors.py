"""A topic's own doors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.engine import Engine
from storage.partitioning.murmur2 import murmur2
from tests.doubles.mount_client import APPEND, MountClient, mounted, refused


@pytest.fixture
async def wide(orders: MountClient) -> MountClient:
    """Three partitions."""
    await orders.mkdir("orders/2")
    return orders


async def contents(client: MountClient, form: str = "log") -> list[bytes]:
    return [await client.cat(f"orders/{number}/{form}") for number in range(3)]


@pytest.mark.parametrize("door", ["log.kv", "log.json"])
async def test_keys_decide_the_partition(wide: MountClient, door: str):
    """By Kafka's murmur2, and in the order of the lines."""
    keys = [b"k%d" % number for number in range(50)]
    form = b"%b\tv\n" if door == "log.kv" else b'{"key":"%b","payload":"v"}\n'

    await wide.append(f"orders/{door}", b"".join(form % key for key in keys))

    expected = [
        b"".join(key + b"\tv\n" for key in keys if (murmur2(key) & 0x7FFFFFFF) % 3 == number)
        for number in range(3)
    ]
    assert await contents(wide, "log.kv") == expected


async def test_a_write_without_keys_goes_to_one_partition(wide: MountClient):
    """Sticky."""
    await wide.append("orders/log", b"a\nb\nc\n")

    assert sorted(await contents(wide)) == [b"", b"", b"a\nb\nc\n"]


async def test_round_robin(engine: Engine, tmp_path: Path):
    """--partitioner roundrobin deals out lines."""
    async with mounted(engine, tmp_path, partitioner="roundrobin") as client:
        await client.mkdir("orders")
        await client.mkdir("orders/2")
        await client.append("orders/log", b"a\nb\nc\nd\n")

        assert await contents(client) == [b"a\nd\n", b"b\n", b"c\n"]


async def test_a_bad_line_keeps_the_whole_write_out(wide: MountClient):
    """Of every partition."""
    with refused("EINVAL"):
        await wide.append("orders/log.json", b'{"key":"a","payload":"1"}\n{"key":"b"}\n')

    assert await contents(wide) == [b"", b"", b""]


@pytest.mark.parametrize("door", ["log", "log.kv", "log.json"])
async def test_doors_are_not_read(wide: MountClient, door: str):
    """EACCES, also for root, whom modes do not stop."""
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_APPEND):
        with refused("EACCES"):
            await wide.open(f"orders/{door}", flags)


async def test_doors_take_appending_programs_alone(wide: MountClient):
    """`log` takes `>` too."""
    await wide.append("orders/log", b"a\n", os.O_WRONLY | os.O_TRUNC)
    for path, flags in (
        ("orders/log", os.O_WRONLY),
        ("orders/log.kv", os.O_WRONLY | os.O_TRUNC),
        ("orders/0/log.json", os.O_WRONLY | os.O_TRUNC),
    ):
        with refused("EPERM"):
            await wide.open(path, flags)
    for size in (0, 1):
        with refused("EPERM"):
            await wide.truncate("orders/log", size)


async def test_internal_topics_are_not_written_by_users(client: MountClient):
    """EPERM by every way in."""
    client.engine.create_topic("__consumer_offsets")
    for path in ("__consumer_offsets/log", "__consumer_offsets/0/log", "__consumer_offsets/config"):
        with refused("EPERM"):
            await client.open(path, APPEND)
    with refused("EPERM"):
        await client.mkdir("__consumer_offsets/1")
    with refused("EPERM"):
        await client.rmdir("__consumer_offsets")
