"""Creating and removing topics and partitions."""

from __future__ import annotations

import errno
import stat
import threading
from pathlib import Path

import pytest
import trio

from tests.doubles.mount_client import APPEND, MountClient, mounted, refused
from topicfs.coordination.engine import Engine
from topicfs.fusefs.views.view import PartitionViews
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode_lines
from topicfs.storage.directories.checkpoints import CheckpointWriter
from topicfs.storage.disk.names import INTERNAL_TOPICS


async def test_mkdir_creates_a_topic_that_keeps_its_records(client: MountClient):
    """mkdir(2) creates a topic of one partition with retention.ms=-1, so that old records can be restored."""
    await client.mkdir("orders")

    topic = client.engine.topic("orders")
    assert [0] == list(topic.partitions())
    assert "-1" == topic.overrides["retention.ms"]


async def test_mkdir_of_a_partition_creates_all_up_to_it(orders: MountClient):
    """`mkdir orders/3` creates all missing partitions up to 3."""
    await orders.mkdir("orders/3")

    assert ["0", "1", "2", "3"] == orders.list("orders")[-4:]


@pytest.mark.parametrize("name", ["a b", "@x", "ü", "x" * 250])
async def test_a_name_that_kafka_does_not_allow(client: MountClient, name: str):
    """An invalid topic name gives EINVAL with a report."""
    with refused("EINVAL"):
        await client.mkdir(name)

    assert client.reports


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_kafkas_own_topics_are_not_made_by_hand(client: MountClient, name: str):
    """mkdir(2) of an internal topic gives EPERM, because Kafka creates it with the partitions in its settings."""
    with refused("EPERM"):
        await client.mkdir(name)
    assert f"{name} is one of Kafka's own topics" in client.reports
    assert {} == dict(client.engine.topics())


async def test_a_name_that_collides(client: MountClient):
    """A topic name that differs from another only in `.` and `_` gives EEXIST, because their metrics collide."""
    await client.mkdir("a.b")

    with refused("EEXIST"):
        await client.mkdir("a_b")
    with refused("EEXIST"):
        await client.mkdir("a.b")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("orders/x", "EINVAL"),
        ("orders/01", "EINVAL"),
        ("orders/10000", "EINVAL"),
        ("orders/-1", "EINVAL"),
        ("orders/log.xml", "EINVAL"),
        ("orders/0", "EEXIST"),
        ("orders/0/new", "EPERM"),
    ],
)
async def test_directories_that_mkdir_refuses(orders: MountClient, path: str, error: str):
    """The name of a partition is a number below 10,000 without leading zeros. A partition has no other directories."""
    with refused(error):
        await orders.mkdir(path)


async def test_rmdir_removes_an_empty_topic(orders: MountClient):
    """rmdir(2) of an empty topic removes its directory immediately."""
    await orders.rmdir("orders")

    assert ["@groups", "@queues", "@status"] == orders.list()
    with refused("ENOENT"):
        orders.lookup("orders")


async def test_rmdir_leaves_records_alone(orders: MountClient):
    """rmdir(2) of a topic that has records gives ENOTEMPTY, and the report names --allow-delete."""
    await orders.append("orders/0/log", b"a\n")

    with refused("ENOTEMPTY"):
        await orders.rmdir("orders")

    assert "--allow-delete" in orders.reports
    assert b"a\n" == await orders.cat("orders/0/log")


async def test_rmdir_with_allow_delete_removes_records_too(engine: Engine, tmp_path: Path):
    """With --allow-delete, rmdir(2) removes a topic and its records."""
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        await client.mkdir("orders")
        await client.append("orders/0/log", b"a\n")

        await client.rmdir("orders")

        assert ["@groups", "@queues", "@status"] == client.list()


@pytest.mark.parametrize(
    ("path", "error"),
    [("payments", "ENOENT"), ("orders/0", "EPERM"), ("orders/0/segments", "EPERM"), ("@status", "EPERM")],
)
async def test_only_topics_are_removed(orders: MountClient, path: str, error: str):
    """rmdir(2) of a partition or another directory gives EPERM, because Kafka cannot remove a partition."""
    with refused(error):
        await orders.rmdir(path)


async def test_a_recreated_topic_is_another_one(orders: MountClient):
    """After a topic was deleted and created again, open files of the old topic give ESTALE."""
    old = await orders.open("orders/0/log", APPEND)
    reader = await orders.open("orders/0/log")
    await orders.rmdir("orders")
    await orders.mkdir("orders")
    await orders.append("orders/0/log", b"new\n")

    with refused("ESTALE"):
        await orders.filesystem.write(old, b"old\n")
    with refused("ESTALE"):
        await orders.filesystem.read(reader, 0, 10)
    assert b"new\n" == await orders.cat("orders/0/log")


@pytest.mark.parametrize("path", ["orders/0/log", "orders/log"])
async def test_readers_end_when_a_partition_is_reopened(orders: MountClient, path: str):
    """When a partition is reopened, readers of a log get ESTALE, because the files may have changed.

    Readers of the topic's `follow` continue.
    """
    await orders.append("orders/0/log", b"a\n")
    reader = await orders.open(path)
    follower = await orders.open("orders/follow")
    orders.engine.reopen_partition("orders", 0)  # type: ignore[attr-defined]
    await orders.append("orders/0/log", b"b\n")

    with refused("ESTALE"):
        await orders.filesystem.read(reader, 0, 10)
    assert b"a\nb\n" == await orders.cat(path)
    assert b"b\n" == await orders.filesystem.read(follower, 0, 10)


@pytest.mark.parametrize("what", ["creating a file", "deleting a file", "renaming"])
async def test_everything_else_that_changes_names_is_refused(orders: MountClient, what: str):
    """Creating, deleting or renaming a file gives EPERM."""
    error = orders.filesystem.refuse(*orders.parent("orders/new"), what)

    with refused("EPERM"):
        raise error


async def test_a_read_only_mount_changes_nothing(tmp_path: Path):
    """In a read-only mount, each way of writing gives EROFS."""
    engine = open_engine(tmp_path / "data")
    engine.create_topic("orders")
    engine.close()
    engine = open_engine(tmp_path / "data", read_only=True)
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        for path in ("new", "orders/1"):
            with refused("EROFS"):
                await client.mkdir(path)
        with refused("EROFS"):
            await client.rmdir("orders")
        for path in ("orders/0/log", "orders/log", "orders/config", "orders/0/start"):
            with refused("EROFS"):
                await client.open(path, APPEND)
        with refused("EROFS"):
            raise client.filesystem.refuse(*client.parent("orders/new"), "creating a file")
    engine.close()


async def test_a_listing_opens_no_partition(tmp_path: Path):
    """A listing opens no partition; stat(2) or a read opens only the partition that it needs."""
    engine = open_engine(tmp_path / "data")
    topic = engine.create_topic("orders", partitions=3)
    (batch,) = encode_lines(b"a\n", timestamp=1_700_000_000_000)
    topic.partitions()[1].append(batch)
    engine.close()
    engine = open_engine(tmp_path / "data", max_opened_at_start=0)
    async with mounted(engine, tmp_path) as client:
        assert ["config", "status", "0", "1", "2"] == client.list("orders")
        with refused("ENOENT"):
            client.lookup("orders/3")
        assert [] == list(engine.topic("orders").opened())
        handle = client.filesystem.opendir(client.lookup("orders").node_id)
        entries = {entry.name: entry.found for entry in client.filesystem.readdir(handle, 0)}
        listed = entries["1"].node.listed_attributes()
        assert (stat.S_IFDIR, 0) == (stat.S_IFMT(listed.mode), listed.timeout)
        client.filesystem.remember(entries["1"].node)
        known = await client.filesystem.getattr(entries["1"].node.node_id)
        assert 1_700_000_000_000_000_000 == known.mtime_ns
        assert [1] == [partition.number for partition in engine.topic("orders").opened()]
        assert entries["1"].node.listed_attributes() == known
        assert b"a\n" == await client.cat("orders/1/log")
        assert 1_700_000_000_000_000_000 == (await client.stat("orders/status")).mtime_ns
        assert 3 == len(list(engine.topic("orders").opened()))
    engine.close()


async def test_a_mount_ends_in_order_if_positions_cannot_be_stored(orders: MountClient, monkeypatch):
    """At its end, a mount tries to store the positions of the views of each partition.

    Each failure is reported as a warning, and does not stop the other attempts.
    """

    def fail(views: PartitionViews) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await orders.mkdir("more")
    for name in ("orders", "more"):
        await orders.append(f"{name}/0/log", b"x\n")
    monkeypatch.setattr(PartitionViews, "remember", fail)

    orders.filesystem.root.topics.close()

    told = [line.partition(" warning ")[2] for line in orders.context.reports.lines()]
    assert ["orders/0", "more/0"] == [line.partition(":")[0] for line in told]
    assert all("No space left" in line for line in told)


async def test_a_writer_of_a_topic_that_is_being_deleted_gets_estale(orders: MountClient, monkeypatch):
    """After the deletion of a topic has begun, its writers get ESTALE. EIO would ask users for a repair."""
    writer = await orders.open("orders/0/log", APPEND)
    ended, goes_on = threading.Event(), threading.Event()
    forget = CheckpointWriter.forget

    def held(*arguments):
        ended.set()
        goes_on.wait(60)
        return forget(*arguments)

    monkeypatch.setattr(CheckpointWriter, "forget", held)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(orders.rmdir, "orders")
        await trio.to_thread.run_sync(ended.wait)
        with refused("ESTALE"):
            await orders.filesystem.write(writer, b"late\n")
        with refused("ESTALE"):
            await orders.filesystem.fsync(writer)
        goes_on.set()
    assert "" == orders.reports
