"""The log of a whole topic: the topic's partitioner spreads appends, and reads merge the partitions by time."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
import trio

from tests.doubles.mount_client import APPEND, MountClient, mounted, refused
from tests.doubles.replicated import Replicated
from topicfs.coordination.engine import Engine
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.files.topic_log import TopicSize
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.tree.topics import TopicDirectory
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.partitioning import murmur2


@pytest.fixture
async def wide(orders: MountClient) -> MountClient:
    """A mount whose topic `orders` has three partitions."""
    await orders.mkdir("orders/2")
    return orders


async def contents(client: MountClient, form: str = "log") -> list[bytes]:
    return [await client.cat(f"orders/{number}/{form}") for number in range(3)]


@pytest.mark.parametrize("name", ["log.kv", "log.json"])
async def test_keys_decide_the_partition(wide: MountClient, name: str):
    """Each line goes to the partition that Kafka's murmur2 gives for its key. Lines of one partition stay in order."""
    keys = [b"k%d" % number for number in range(50)]
    form = b"%b\tv\n" if name == "log.kv" else b'{"key":"%b","payload":"v"}\n'

    await wide.append(f"orders/{name}", b"".join(form % key for key in keys))

    expected = [
        b"".join(key + b"\tv\n" for key in keys if (murmur2(key) & 0x7FFFFFFF) % 3 == number)
        for number in range(3)
    ]
    assert await contents(wide, "log.kv") == expected


async def test_a_write_without_keys_goes_to_one_partition(wide: MountClient):
    """All lines without keys in one write go to one partition, the sticky partition."""
    await wide.append("orders/log", b"a\nb\nc\n")

    assert [b"", b"", b"a\nb\nc\n"] == sorted(await contents(wide))


KEYS = b"".join(b"k%d\tv\n" % number for number in range(9))
"""Lines whose keys cover all three partitions."""


@asynccontextmanager
async def over_two_disks(acks: Acks) -> AsyncIterator[tuple[Replicated, MountClient]]:
    """A mount of a topic with three partitions and two replicas; acks=all needs both replicas."""
    two = Replicated(min_insync_replicas=2, message_timestamp_after_max_ms=1 << 62)
    async with mounted(two.engine, None, acks=acks) as client:
        await client.mkdir("orders")
        await client.mkdir("orders/2")
        yield two, client


@pytest.mark.parametrize(
    ("acks", "flags"), [(Acks.ALL, 0), (Acks.LEADER, os.O_SYNC), (Acks.LEADER, os.O_DSYNC)]
)
async def test_a_durable_write_needs_the_replicas_of_all_its_partitions(acks: Acks, flags: int):
    """If any partition has too few replicas, a durable write fails with EAGAIN and a reason, and appends no line.

    Once all partitions have enough replicas, repeating the write appends each line once.
    """
    async with over_two_disks(acks) as (two, client):
        third = two.partition(TopicPartition("orders", 2))
        follower = ReplicaId(2 if third.state.leader == 1 else 1)
        two.engine.controller.leave(third, follower)
        for path in ("orders/log.kv", "orders/2/log.kv"):
            with refused("EAGAIN"):
                await client.append(path, KEYS, APPEND | flags)
            assert f"error {path}: " in client.reports.splitlines()[-1]
            assert "min.insync.replicas" in client.reports.splitlines()[-1]
        two.bring_back(follower)
        assert [b"", b"", b""] == await contents(client)
        await client.append("orders/log.kv", KEYS, APPEND | flags)
        assert 9 == len((await client.cat("orders/log")).splitlines())


async def test_a_disk_that_dies_in_a_durable_write_leaves_the_whole_write_in_the_log():
    """If a disk fails during a durable write, the write fails with EIO, and each of its lines is in the logs once."""
    async with over_two_disks(Acks.ALL) as (two, client):
        two.disk(2).fail("pwrite", times=1_000_000)
        with refused("EIO"):
            await client.append("orders/log.kv", KEYS)
        assert [b"", b"", b""] == await contents(client)
        two.bring_back(2)
        assert 9 == len((await client.cat("orders/log")).splitlines())


async def test_round_robin(engine: Engine, tmp_path: Path):
    """`--partitioner roundrobin` assigns lines to partitions in turn."""
    async with mounted(engine, tmp_path, partitioner="roundrobin") as client:
        await client.mkdir("orders")
        await client.mkdir("orders/2")
        await client.append("orders/log", b"a\nb\nc\nd\n")

        assert [b"a\nd\n", b"b\n", b"c\n"] == await contents(client)


async def test_a_bad_line_keeps_the_whole_write_out(wide: MountClient):
    """A bad line fails the whole write, and no partition gets a line."""
    with refused("EINVAL"):
        await wide.append("orders/log.json", b'{"key":"a","payload":"1"}\n{"key":"b"}\n')

    assert [b"", b"", b""] == await contents(wide)


async def spread(client: MountClient, *times: int) -> None:
    """Append a record for each of `times` to three partitions in turn; its value contains its timestamp."""
    for turn, time in enumerate(times):
        line = b'{"payload":"at %d","ts":%d}\n' % (time, time)
        await client.append(f"orders/{turn % 3}/log.json", line)


async def test_a_topics_log_is_its_partitions_merged_by_time(wide: MountClient):
    """The topic's log merges the partitions by timestamp, in each form."""
    await spread(wide, 5, 3, 4, 6, 9, 7)

    assert b"at 3\nat 4\nat 5\nat 6\nat 7\nat 9\n" == await wide.cat("orders/log", chunk=3)
    assert b"\\N\tat 3" == (await wide.cat("orders/log.kv")).splitlines()[0]
    assert 6 == (await wide.cat("orders/log.json")).count(b'"topic":"orders"')


@pytest.mark.parametrize("name", ["log", "log.kv", "log.json"])
async def test_the_size_of_a_topics_log_is_the_sum_of_its_partitions(wide: MountClient, name: str):
    """A topic's log has as many bytes as its partitions' logs together, and the mtime of the newest record."""
    await spread(wide, 5, 3, 4, 6, 9, 7)

    shown = await wide.stat(f"orders/{name}")

    assert sum([(await wide.stat(f"orders/{number}/{name}")).size for number in range(3)]) == shown.size
    assert len(await wide.cat(f"orders/{name}")) == shown.size
    assert 9_000_000 == shown.mtime_ns


async def test_a_lookup_of_a_topics_log_measures_nothing(wide: MountClient):
    """A lookup returns size 1 and does not let the kernel cache it, so that the kernel asks for the size later."""
    await spread(wide, 1)

    found = wide.lookup("orders/log").attributes()

    assert (1, 0) == (found.size, found.timeout)


async def test_an_open_topics_log_shows_records_up_to_the_size_in_stat(wide: MountClient):
    """An open file shows records up to the size that the last stat(2) gave; earlier bytes keep their positions."""
    await spread(wide, 5, 6)
    fh = await wide.open("orders/log")
    await spread(wide, 1, 7)
    size = (await wide.stat("orders/log")).size
    expected = b"at 5\nat 6\nat 1\nat 7\n"

    assert (expected, len(expected)) == (await wide.read_on(fh), size)
    await spread(wide, 2)
    assert b"" == await wide.filesystem.read(fh, size, 10)
    await wide.stat("orders/log")
    assert b"at 2\n" == await wide.filesystem.read(fh, size, 10)
    assert expected + b"at 2\n" == await wide.read_on(fh)


async def test_removing_the_front_does_not_shrink_an_open_topics_log(wide: MountClient):
    """After a deletion, an open file keeps its positions and grows; the name gets a new node with the same inode."""
    await spread(wide, *range(9))
    old = wide.lookup("orders/log")
    before = await wide.filesystem.getattr(old.node_id)
    wide.engine.partition("orders", 1).delete_records(Offset(2))
    await spread(wide, 9)

    after = await wide.stat("orders/log")

    assert (before.ino, len(await wide.cat("orders/log"))) == (after.ino, after.size)
    assert (before.size + 5, before.size - 5) == (
        (await wide.filesystem.getattr(old.node_id)).size,
        after.size,
    )
    with refused("ESTALE"):
        await wide.filesystem.open(old.node_id, os.O_RDONLY, 1)


async def test_a_new_partition_adds_to_the_size_of_a_topics_log(wide: MountClient):
    """After a partition is added, the size of the topic's log includes it, even if stat(2) was called before."""
    await spread(wide, 1)
    await wide.stat("orders/log")
    await wide.mkdir("orders/3")
    await wide.append("orders/3/log", b"new\n")

    assert 9 == (await wide.stat("orders/log")).size


async def test_a_topics_log_ends_where_it_ended_when_it_was_opened(wide: MountClient):
    """A read ends at the size that the log had at open(2), unless a later stat(2) gave a larger size."""
    await spread(wide, 1, 2)
    fh = await wide.open("orders/log")
    await spread(wide, 3)

    assert b"at 1\nat 2\n" == await wide.read_on(fh)


async def test_a_topics_log_can_be_read_and_appended_to_by_one_file(wide: MountClient):
    """A file opened with O_RDWR and O_APPEND can both read the log and append to it."""
    await spread(wide, 1)
    fh = await wide.open("orders/log", os.O_RDWR | os.O_APPEND)

    await wide.filesystem.write(fh, b"new\n")

    assert b"at 1\n" == await wide.read_on(fh)
    await wide.close(fh)
    assert b"at 1\nnew\n" == await wide.cat("orders/log")


async def test_a_writer_alone_reads_nothing(wide: MountClient):
    """Reading a file that was opened only for writing fails with EBADF."""
    fh = await wide.open("orders/log", APPEND)

    with refused("EBADF"):
        await wide.filesystem.read(fh, 0, 10)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("@4-", [4, 5, 6, 7]),
        ("@4-@6", [4, 5]),
        ("@1970-01-01T00:00:00.005Z-", [5, 6, 7]),
        ("@8-", []),
        ("@0-@0", []),
    ],
)
async def test_times_of_a_topic(wide: MountClient, name: str, expected: list[int]):
    """`@T1-@T2` shows the part of each partition from the time T1 up to the time T2.

    The part begins at the first record at or after T1 and ends before the first record at or after T2.
    """
    await spread(wide, 1, 2, 3, 4, 5, 6, 7)

    assert await wide.cat(f"orders/{name}") == b"".join(b"at %d\n" % time for time in expected)


async def test_a_partition_may_be_added_while_a_thread_measures_the_size(wide: MountClient):
    """If a partition is added while a thread measures the size, the next stat(2) includes it."""
    await spread(wide, 1, 2, 3)
    topic = wide.lookup("orders")
    assert isinstance(topic, TopicDirectory)
    size = TopicSize(topic.files, VALUES)
    assert size.measured
    wide.engine.add_partitions("orders", total=4)

    await trio.to_thread.run_sync(size.measure)

    assert {0, 1, 2} == size.views.keys()
    assert size.measured
    assert {0, 1, 2, 3} == size.views.keys()


async def test_closing_an_unread_range_of_times_fails(wide: MountClient):
    """Closing an unread range of times that has records fails with EIO, because stat(2) gave a wrong size."""
    await spread(wide, 1, 2, 3)
    for name, error in (("@2-", "EIO"), ("@9-", None)):
        assert 1 == (await wide.stat(f"orders/{name}")).size
        fh = await wide.open(f"orders/{name}")
        assert 0 == (await wide.stat(f"orders/{name}")).size
        with refused(error) if error else nullcontext():
            await wide.close(fh)
    fh = await wide.open("orders/@2-")
    assert 10 == len(await wide.read_on(fh))
    await wide.close(fh)


@pytest.mark.parametrize("flags", [os.O_WRONLY | os.O_APPEND, os.O_RDWR])
async def test_times_are_only_read(wide: MountClient, flags: int):
    """Opening a topic's range of times for writing, or truncating it, fails with EPERM."""
    with refused("EPERM"):
        await wide.open("orders/@0-", flags)
    with refused("EPERM"):
        await wide.truncate("orders/@0-", 0)


async def test_a_topics_log_is_stale_once_the_topic_is_deleted(wide: MountClient):
    """After its topic was deleted, reading an open file gives ESTALE."""
    fh = await wide.open("orders/log")
    await wide.rmdir("orders")

    with refused("ESTALE"):
        await wide.filesystem.read(fh, 0, 10)


async def test_a_topics_status(wide: MountClient):
    """A topic's status has sums over all partitions, and a line per partition.

    A listing shows size 0 for `status`.
    """
    await spread(wide, 1000, 2000, 3000, 4000)

    lines = (await wide.cat("orders/status")).decode().splitlines()

    values = dict(line.split(" ", 1) for line in lines if not line.startswith("partition "))
    assert ("3", "0", "3") == (values["partitions"], values["offline_partitions"], values["segments"])
    assert "4" == values["unflushed_records"]
    assert "1000 1970-01-01T00:00:01.000Z" == values["first_timestamp"]
    assert "4000 1970-01-01T00:00:04.000Z" == values["last_timestamp"]
    assert [
        "partition 0 log_start_offset 0 high_watermark 2 state online",
        "partition 1 log_start_offset 0 high_watermark 1 state online",
        "partition 2 log_start_offset 0 high_watermark 1 state online",
    ] == [line for line in lines if line.startswith("partition ")]
    assert (await wide.stat("orders/status")).size == len("\n".join(lines)) + 1
    assert 0 == wide.lookup("orders/status").listed_attributes().size


async def test_an_empty_topics_status(wide: MountClient):
    """In the status of an empty topic, the timestamps are a dash."""
    assert b"first_timestamp -\nlast_timestamp -\n" in await wide.cat("orders/status")


async def test_files_of_a_topic_can_only_be_opened_for_appending(wide: MountClient):
    """`log` can be opened with O_TRUNC or O_APPEND. The other forms require O_APPEND. truncate(2) fails."""
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
    """Changing an internal topic of Kafka through any file or directory gives EPERM; `@status` has the reason."""
    client.engine.create_topic("__consumer_offsets")
    for name in ("log", "0/log", "0/log.batch", "config"):
        with refused("EPERM"):
            await client.open(f"__consumer_offsets/{name}", APPEND)
    with refused("EPERM"):
        await client.mkdir("__consumer_offsets/1")
    with refused("EPERM"):
        await client.rmdir("__consumer_offsets")
    told = [line.partition(" error ")[2] for line in client.context.reports.lines()]
    assert ["__consumer_offsets is one of Kafka's own topics"] * 6 == [
        line.partition(": ")[2] for line in told
    ]
    assert {"", "/log", "/0/log", "/0/log.batch", "/config", "/1"} == {
        line.partition(": ")[0][len("__consumer_offsets") :] for line in told
    }


async def test_records_of_internal_topics_are_not_deleted(engine: Engine, tmp_path: Path):
    """Deleting records of an internal topic gives EPERM even with --allow-delete. A broker also refuses this."""
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        client.engine.create_topic("__consumer_offsets")
        with refused("EPERM"):
            await client.append("__consumer_offsets/0/start", b"0\n")
        assert "__consumer_offsets/0/start: __consumer_offsets is one of Kafka's own" in client.reports
