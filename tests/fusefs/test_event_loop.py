"""While a long request runs in a thread, the event loop answers other requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from tests.doubles.hostile import record, sealed
from tests.doubles.mount_client import APPEND, MountClient, mounted, refused
from topicfs.coordination.engine import Engine
from topicfs.fusefs.files import follow_file as follows
from topicfs.fusefs.files import partition_files
from topicfs.fusefs.files import topic_log as topic_logs
from topicfs.fusefs.following import follow
from topicfs.fusefs.processes.signals import Look
from topicfs.fusefs.views import records
from topicfs.fusefs.views.view import View
from topicfs.storage.codec.headers import Codec
from topicfs.storage.log.appending.appender import LogAppender
from topicfs.storage.log.reading.reader import LogReader
from topicfs.storage.messages import printable
from topicfs.storage.topics import changes

GATE_SECONDS = 60.0
"""After this time in seconds a gate opens by itself. A call that waits in the event loop then fails the test."""


class Gate:
    """Holds each call in its thread until the test opens the gate."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()
        self.held_too_long = False

    def open(self) -> None:
        self._opened.set()

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that waits until the gate is open and then makes `call`."""

        def held(*args: Any, **options: Any) -> Any:
            self.reached.set()
            if not self._opened.wait(GATE_SECONDS):
                self.held_too_long = True
            return call(*args, **options)

        return held


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A closed gate. At the end, the fixture opens it and checks that no call has waited until the timeout."""
    gate = Gate()
    yield gate
    gate.open()
    assert not gate.held_too_long, "a call waited in the event loop's thread"


async def reached(gate: Gate) -> None:
    """Wait until the gate holds a call."""
    await trio.to_thread.run_sync(gate.reached.wait, GATE_SECONDS)


@pytest.fixture
def in_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str], list[bool]]:
    """Return a function that records for each call of a method whether it ran in the event loop's thread."""

    def watch(of: object, name: str) -> list[bool]:
        seen: list[bool] = []
        call = getattr(of, name)

        def noted(*args: Any, **options: Any) -> Any:
            seen.append(threading.current_thread() is threading.main_thread())
            return call(*args, **options)

        monkeypatch.setattr(of, name, noted)
        return seen

    return watch


async def others_answer(client: MountClient) -> None:
    """Check that append, stat, read and list on the topic `other` are answered."""
    await client.append("other/0/log", b"line\n")
    assert 5 == (await client.stat("other/0/log")).size
    assert b"line\n" == await client.cat("other/0/log")
    assert "log" in client.list("other/0")
    assert "other" in client.list()


async def patient_lookup(client: MountClient, path: str) -> int:
    """Look up a name as the kernel does, and return the ID of its node."""
    fs = client.filesystem
    parent, name = client.parent(path)
    return (await fs.run_inline_or_in_thread(lambda: fs.lookup(parent, name))).node.node_id


async def patient_cat(client: MountClient, path: str) -> bytes:
    """Look up a name as the kernel does, and read its file."""
    fs = client.filesystem
    fh = (await fs.open(await patient_lookup(client, path), os.O_RDONLY, 0)).fh
    content = await client.read_on(fh)
    await fs.release(fh)
    return content


async def test_others_are_answered_while_a_file_is_measured(orders: MountClient, gate, monkeypatch):
    """While an open(2) measures a large file, the event loop answers other requests."""
    await orders.mkdir("other")
    large = b"x" * 2**22
    await orders.append("orders/0/log.batch", bytes(sealed(record(large), codec=Codec.ZSTD)))
    monkeypatch.setattr(View, "measure", gate.before(View.measure))
    sizes = []

    async def open_it() -> None:
        fh = await orders.open("orders/0/log")
        sizes.append((await orders.filesystem.getattr(orders.lookup("orders/0/log").node_id)).size)
        await orders.filesystem.release(fh)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_it)
        await reached(gate)
        await others_answer(orders)
        gate.open()
    assert sizes == [len(large) + 1]


async def test_others_are_answered_while_partitions_are_made(orders: MountClient, gate, monkeypatch):
    """While partitions are created, the event loop answers other requests; other changes of topics wait in threads."""
    await orders.mkdir("other")
    monkeypatch.setattr(changes, "load_new", gate.before(changes.load_new))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(orders.mkdir, "orders/3")
        await reached(gate)
        nursery.start_soon(orders.append, "other/config", b"retention.ms=7\n")
        await trio.testing.wait_all_tasks_blocked()
        await others_answer(orders)
        gate.open()
    assert "3" == orders.list("orders")[-1]
    assert b"retention.ms=7\n" in await orders.cat("other/config")


async def test_a_long_search_by_time_runs_in_a_thread(orders: MountClient, in_loop, monkeypatch):
    """If a search by time would decompress more than INLINE_SEARCH_BYTES, it is repeated in a thread."""
    monkeypatch.setattr(records, "INLINE_SEARCH_BYTES", 2**19)
    await orders.append("orders/config", b"compression.type=zstd\n")
    line = b'{"payload":"%s","ts":%d}\n'
    await orders.append(
        "orders/0/log.json", line % (b"x" * 600_000, 10) + line % (b"y" * 600_000, 20) + line % (b"b", 30)
    )
    seen = in_loop(LogReader, "record_at")
    assert b"b" == await patient_cat(orders, "orders/0/@25")
    assert [True, False] == seen[:2]


async def test_a_time_near_by_is_looked_up_at_once(orders: MountClient, in_loop):
    """A time that is close to an index entry is searched in the event loop's thread."""
    await orders.append("orders/0/log.json", b'{"payload":"a","ts":10}\n{"payload":"b","ts":20}\n')
    seen = in_loop(LogReader, "record_at")
    for name, expected in (("@15", b"b"), ("@15-", b"b\n"), ("@0-@15", b"a\n")):
        assert expected == await patient_cat(orders, f"orders/0/{name}")
        await patient_lookup(orders, f"orders/0/{name}")
    assert len(seen) > 4
    assert all(seen)


async def test_settings_and_the_start_are_written_in_a_thread(engine: Engine, tmp_path, in_loop):
    """Settings and log start offsets are written in a thread, because both writes wait for the disk."""
    seen = [in_loop(type(engine), name) for name in ("alter_config", "keep_log_starts")]
    async with mounted(engine, tmp_path, allow_delete=True) as client:
        await client.mkdir("orders")
        await client.append("orders/0/log", b"a\nb\n")
        await client.append("orders/config", b"retention.ms=7\n")
        await client.append("orders/0/start", b"1\n")
        assert b"b\n" == await client.cat("orders/0/log")
    assert [[False], [False]] == seen


async def test_a_status_is_made_in_a_thread_unless_segments_were_few(
    orders: MountClient, engine: Engine, in_loop, monkeypatch
):
    """The status of many segments is made in a thread, because it asks the disk about each segment.

    Listings make no status.
    """
    seen = in_loop(engine.partition("orders", 0), "status")
    for _ in range(2):
        await orders.append("orders/0/log", b"x\n")
        await orders.stat("orders/0/log")
        orders.list("orders/0")
        orders.list("orders")
    assert [] == seen
    monkeypatch.setattr(partition_files, "FEW_SEGMENTS", 0)
    for path in ("orders/0/status", "orders/status"):
        node_id = await patient_lookup(orders, path)
        size = (await orders.filesystem.getattr(node_id)).size
        assert size == len(await patient_cat(orders, path))
    assert len(seen) >= 4
    assert not any(seen)
    monkeypatch.undo()
    seen = in_loop(engine.partition("orders", 0), "status")
    await patient_lookup(orders, "orders/0/status")
    assert [True] == seen


async def test_a_listing_of_segments_describes_each_once(orders: MountClient, engine: Engine, in_loop):
    """A listing of `segments` describes each segment once; later lookups search this listing."""
    await orders.append("orders/config", b"segment.bytes=1048576\n")
    for _ in range(3):
        await orders.append("orders/0/log", b"x" * 1_000_000 + b"\n")
    seen = in_loop(engine.partition("orders", 0), "segments")
    names = orders.list("orders/0/segments")
    assert 3 == sum(name.endswith(".log") for name in names)
    assert 1 == len(seen)
    for name in names:
        assert (await orders.stat(f"orders/0/segments/{name}")).size >= 0
    with refused("ENOENT"):
        orders.lookup("orders/0/segments/00000000000000000009.log")
    assert 1 == len(seen)


async def test_lines_for_many_partitions_are_spread_in_a_thread(orders: MountClient, in_loop, monkeypatch):
    """Many lines for many partitions are appended in a thread.

    Few lines, or lines for few partitions, are appended in the event loop.
    """
    monkeypatch.setattr(topic_logs, "SLOW_DISTRIBUTION_PARTITIONS", 1)
    seen = in_loop(LogAppender, "_append_own")
    lines = b"".join(b"%d\tv\n" % number for number in range(2000))
    await orders.append("orders/log.kv", lines)
    assert [True] == seen
    await orders.mkdir("orders/3")
    seen.clear()
    await orders.append("orders/log.kv", b"k\tv\n")
    assert [True] == seen
    await orders.append("orders/log.kv", lines)
    assert [False] * 4 == seen[1:]
    assert 4001 == len((await orders.cat("orders/log.kv")).splitlines())


@pytest.mark.parametrize("path", ["orders/log.json", "orders/0/log.json"])
async def test_many_lines_of_json_are_parsed_in_a_thread(orders: MountClient, in_loop, path: str):
    """A write of many JSON lines is parsed and appended in a thread; a write of few lines is not."""
    seen = in_loop(LogAppender, "_append_own")
    await orders.append(path, b'{"payload":"v"}\n' * 1000)
    assert [True] == seen
    await orders.append(path, b'{"payload":"v"}\n' * 1100)
    assert [True, False] == seen
    assert b"v\n" * 2100 == await orders.cat("orders/0/log")


async def test_many_partitions_are_followed_in_a_thread(orders: MountClient, in_loop, monkeypatch):
    """A reader of many partitions runs in a thread, because after each append it checks each partition."""
    monkeypatch.setattr(follow, "INLINE_PARTITIONS", 1)
    monkeypatch.setattr(follows, "INLINE_PARTITIONS", 1)
    seen = in_loop(follow.FollowHandle, "_fill")
    await orders.mkdir("orders/2")
    fh = await orders.open("orders/follow")
    await orders.append("orders/1/log", b"one\n")
    assert b"one\n" == await orders.filesystem.read(fh, 0, 100)
    assert [False] == seen
    await orders.mkdir("orders/3")
    await orders.append("orders/3/log", b"two\n")
    assert b"two\n" == await orders.filesystem.read(fh, 4, 100)
    assert not any(seen)
    await orders.filesystem.release(fh)


async def test_partitions_that_came_are_followed(orders: MountClient):
    """A waiting reader of `follow` gets the first record of a partition that is created during the wait."""
    fh = await orders.open("orders/follow")
    read = []

    async def read_it() -> None:
        read.append(await orders.filesystem.read(fh, 0, 100))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_it)
        await trio.testing.wait_all_tasks_blocked()
        await orders.mkdir("orders/1")
        await trio.testing.wait_all_tasks_blocked()
        await orders.append("orders/1/log", b"one\n")
    assert [b"one\n"] == read
    await orders.filesystem.release(fh)


async def test_stat_ends_with_the_program_that_waits_for_it(engine: Engine, tmp_path):
    """A stat(2) that measures an open file ends with EINTR if its program is killed."""

    def look(pid: int) -> Look | None:
        return Look(1, stuck=True, pending=1 << 8) if pid == 1 else Look(1, stuck=False, pending=0)

    async with mounted(engine, tmp_path, look=look) as client:
        await client.mkdir("orders")
        await client.append("orders/0/log.batch", bytes(sealed(record(b"x" * 2**23), codec=Codec.ZSTD)))
        node_id = client.lookup("orders/0/log").node_id
        with refused("EINTR"):
            await client.filesystem.getattr(node_id, 1)
        assert 2**23 + 1 == (await client.filesystem.getattr(node_id, 2)).size


async def test_counting_back_ends_with_the_program_that_waits_for_it(engine: Engine, tmp_path, monkeypatch):
    """A lookup of `-N`, which may walk over gigabytes of batches, ends with EINTR if its program has ended."""
    monkeypatch.setattr("topicfs.fusefs.threads.blocking_calls.INLINE_BYTES", 1)
    gone = [True]
    async with mounted(engine, tmp_path, look=lambda pid: None if gone[0] else Look(1, False, 0)) as client:
        await client.mkdir("orders")
        for _ in range(5):
            await client.append("orders/0/log", b"x\ny\n")
        fs, parent = client.filesystem, client.lookup("orders/0").node_id
        with refused("EINTR"):
            await fs.run_inline_or_in_thread(lambda: fs.lookup(parent, b"-3"), 7)
        gone[0] = False
        found = await fs.run_inline_or_in_thread(lambda: fs.lookup(parent, b"-3"), 7)
        fh = (await fs.open(found.node.node_id, os.O_RDONLY, 7)).fh
        assert b"y\nx\ny\n" == await client.read_on(fh)
        await fs.release(fh)


async def test_a_batch_too_large_ends_the_read_of_its_topic(engine: Engine, tmp_path):
    """A read of a topic's log fails with EFBIG at a batch above the limit. The next read continues after this batch."""
    engine.create_topic("orders", partitions=2)
    for number, values in ((0, (b"a", b"x" * (64 * 2**20 + 1), b"c")), (1, (b"b",))):
        for time, value in enumerate(values):
            batch = sealed(record(value), codec=Codec.ZSTD, timestamps=(time, time))
            engine.partition("orders", number).append(batch, encoded_here=True)
    async with mounted(engine, tmp_path) as client:
        fh = await client.open("orders/log")
        assert b"a\n" == await client.filesystem.read(fh, 0, 100)
        with refused("EFBIG") as caught:
            await client.filesystem.read(fh, 2, 100)
        assert "67108864 bytes inflated" in caught.reason
        assert printable(caught.reason) in client.reports
        assert b"b\nc\n" == await client.read_on(fh, 2)
        await client.filesystem.release(fh)


async def test_opening_a_range_of_times_ends_with_its_program(engine: Engine, tmp_path):
    """Opening a range of times searches each partition, and ends with EINTR if the program has ended."""
    engine.create_topic("orders", partitions=3)
    async with mounted(engine, tmp_path, look=lambda pid: None) as client:
        node_id = client.lookup("orders/@0-").node_id
        with refused("EINTR"):
            await client.filesystem.open(node_id, os.O_RDONLY, 7)
        await client.append("orders/1/log", b"x\n", APPEND)
        fh = (await client.filesystem.open(node_id, os.O_RDONLY, 0)).fh
        assert b"x\n" == await client.read_on(fh)
        await client.filesystem.release(fh)
