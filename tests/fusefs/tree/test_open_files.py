"""Open files, and names that the kernel has cached, when records are damaged, removed or added."""

from __future__ import annotations

import errno
import select
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.doubles.damage import flip_text
from tests.doubles.mount_client import MountClient, mounted, refused
from tests.doubles.simulated_disk import SimulatedDisk
from tests.fusefs.following.test_follow import Notification
from topicfs.coordination.engine import Engine
from topicfs.fusefs.files.topic_files import TopicFiles
from topicfs.fusefs.nodes.ownership import Ownership
from topicfs.fusefs.operations import Operations
from topicfs.fusefs.requests.request_counts import RequestCounts
from topicfs.fusefs.views.measure import LATEST_BYTES
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.engine import Cancel
from topicfs.storage.manager import Machine
from topicfs.storage.model import Offset, Record, Timestamp

LONG_LINE = b"x" * LATEST_BYTES + b"\n"
"""A line that is too large to be kept in memory after it was measured."""

SHOWING_A = ["0/log", "0/log.json", "0/0-", "0/follow", "log", "follow"]


@pytest.mark.parametrize("name", SHOWING_A)
async def test_a_read_whose_file_the_disk_does_not_find_is_stale(name: str, tmp_path: Path):
    """If the file of a segment is missing on the disk, a read gives ESTALE.

    ENOENT would mean that the name of the open file does not exist.
    """
    disk = SimulatedDisk()
    engine = open_engine(Path("/data"), machine=Machine(files=disk))
    async with mounted(engine, tmp_path) as client:
        await client.mkdir("orders")
        await client.append("orders/0/log", LONG_LINE)
        fh = await client.open(f"orders/{name}")
        await client.append("orders/0/log", LONG_LINE)
        disk.fail("pread", number=errno.ENOENT, suffix=".log", times=1000)
        with refused("ESTALE"):
            await client.filesystem.read(fh, 0, 10)
    engine.close()


async def test_a_cached_read_of_a_damaged_batch_fails_whole(orders: MountClient, tmp_path: Path):
    """A read for the page cache fails as a whole at a damaged batch, while a read of `log` ends before the batch.

    The page cache would take a short read for the end of the file, and fill the page with zeros.
    """
    for number in range(3):
        await orders.append("orders/0/log", b"value %d %s" % (number, LONG_LINE))
    for name in ("log", "0-2"):
        assert 3 * (LATEST_BYTES + 9) == (await orders.stat(f"orders/0/{name}")).size
    flip_text(tmp_path / "data/orders-0/00000000000000000000.log", b"value 1")
    closed, growing = await orders.open("orders/0/0-2"), await orders.open("orders/0/log")

    assert b"value 0 " + LONG_LINE == await orders.filesystem.read(growing, 0, 4096)
    with refused("EIO"):
        await orders.filesystem.read(closed, 0, 4096)


async def test_followers_of_a_topic_wake_for_each_partition(orders: MountClient):
    """A waiting reader of a topic's `follow` gets the next record, whatever partition the record is in."""
    await orders.mkdir("orders/1")
    fh = await orders.open("orders/follow")
    seen: list[bytes] = []

    async def read() -> None:
        seen.append(bytes(await orders.filesystem.read(fh, 0, 100)))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.01)
            await orders.append("orders/1/log", b"new\n")

    assert [b"new\n"] == seen
    await orders.close(fh)


async def test_a_record_that_arrives_before_a_reader_waits_is_not_missed(
    orders: MountClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    """A record that arrives after a reader has found none, but before the reader waits, is not missed."""
    fh = await orders.open("orders/follow")
    wait, late = TopicFiles.wait, [encode([Record(Offset(0), Timestamp(0), None, b"a")])]

    def append_and_wait(files: TopicFiles, waiter: Callable[[], None]) -> Cancel:
        if late:
            engine.partition("orders", 0).append(late.pop())
        return wait(files, waiter)

    monkeypatch.setattr(TopicFiles, "wait", append_and_wait)
    with trio.fail_after(20):
        assert b"a\n" == await orders.filesystem.read(fh, 0, 100)


async def test_the_first_poll_of_a_deleted_topic_is_readable(orders: MountClient):
    """poll(2) after the topic was deleted finds the file readable, and the read fails with ESTALE."""
    fh = await orders.open("orders/follow")
    await orders.rmdir("orders")

    assert orders.filesystem.poll(fh, Notification()) & select.POLLIN
    with refused("ESTALE"):
        await orders.filesystem.read(fh, 0, 100)


async def test_a_listing_after_a_deletion_caches_no_attributes(engine: Engine, tmp_path: Path):
    """After a deletion, a listing does not let the kernel cache attributes.

    stat(2) of an old name must still give the old inode number.
    """
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        await client.mkdir("orders")
        filesystem = client.filesystem
        operations = Operations(filesystem, RequestCounts(), Ownership.of_process(), lambda: None)
        directory = client.lookup("orders/0").node_id
        await client.append("orders/0/log", b"a\nb\n")
        await client.stat("orders/0/log")
        before = operations._found(filesystem.lookup(directory, b"log"))
        await client.append("orders/0/start", b"1\n")

        after = operations._found(filesystem.lookup(directory, b"log"))

        assert before.attr_timeout > 0
        assert after.st_ino != before.st_ino
        assert 0 == after.attr_timeout
        assert (await filesystem.getattr(after.st_ino)).ino == before.st_ino


async def test_a_compacted_record_has_no_name(tmp_path: Path):
    """A lookup after a compaction does not find a removed record, even if the kernel still has the record's node."""
    engine = open_engine(tmp_path / "data")
    settings = {
        "internal.segment.bytes": "400",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    }
    engine.create_topic("orders", overrides=settings)
    partition = engine.partition("orders", 0)
    for number in range(40):
        value = b"value %d" % number
        partition.append(encode([Record(Offset(0), Timestamp(1_700_000_000_000 + number), b"k", value)]))
    async with mounted(engine, tmp_path) as client:
        for offset in ("5", "39"):
            assert await client.cat(f"orders/0/{offset}") == b"value %d" % int(offset)

        engine.maintenance(Timestamp(1_700_000_100_000))

        assert partition.rewrites > 0
        with refused("ENOENT"):
            client.lookup("orders/0/5")
        assert b"value 39" == await client.cat("orders/0/39")
    engine.close()
