"""Expensive requests run in threads within limits, and appends beyond the limits are refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.damage import flip_text
from tests.doubles.hostile import SHORTEST_RECORD, empty_headers, record, sealed
from tests.doubles.mount_client import MountClient, mounted, refused
from topicfs.coordination.engine import Engine
from topicfs.fusefs.allowance import INLINE_BYTES, RequestTooLargeError, current
from topicfs.fusefs.files.selector_files import LARGEST_XATTR_BYTES
from topicfs.fusefs.processes.signals import Look
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES, MAX_HEADERS, MAX_RECORDS
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import varint
from topicfs.storage.remote import ThreadNeededError

LARGE = b"x" * (INLINE_BYTES + 1)
"""A value too large to be decoded in the event loop's thread."""


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """A list with an item per call through BlockingCalls: True if the call ran in the event loop's thread.

    At the end, the fixture checks that no item is True.
    """
    seen: list[bool] = []
    run = BlockingCalls.run

    async def noted(self, call, *, abandon=False, caller=None):
        def noting():
            seen.append(threading.current_thread() is threading.main_thread())
            return call()

        return await run(self, noting, abandon=abandon, caller=caller)

    monkeypatch.setattr(BlockingCalls, "run", noted)
    yield seen
    assert not any(seen)


async def put(orders: MountClient, *batches: bytes) -> None:
    for batch in batches:
        await orders.append("orders/0/log.batch", bytes(batch))


async def test_a_cheap_call_runs_in_the_event_loop(threads):
    """A cheap call runs immediately, in the event loop's thread, with an allowance of INLINE_BYTES."""
    seen = []
    assert "done" == await BlockingCalls().run_inline_or_in_thread(lambda: seen.append(current()) or "done")
    assert (True, INLINE_BYTES, []) == (seen[0].inline, seen[0].remaining, threads)
    assert current() is None


async def test_an_expensive_call_is_repeated_in_a_thread(threads):
    """A call that raises ThreadNeededError is repeated in a thread with a larger allowance, where it may also fail."""

    def call():
        if current().inline:
            raise ThreadNeededError
        return current().remaining

    assert await BlockingCalls().run_inline_or_in_thread(call) > INLINE_BYTES
    assert 1 == len(threads)

    def failing():
        if current().inline:
            raise ThreadNeededError
        raise RequestTooLargeError

    with pytest.raises(RequestTooLargeError):
        await BlockingCalls().run_inline_or_in_thread(failing)


async def test_reading_a_large_batch_leaves_the_event_loop(orders: MountClient, threads):
    """Reading a large batch runs in a thread, whatever the file is; reading a small batch does not."""
    await put(orders, sealed(record(b"small"), codec=Codec.ZSTD))
    threads.clear()
    assert b"small\n" == await orders.cat("orders/0/log")
    assert [] == threads
    await put(orders, sealed(record(LARGE), codec=Codec.ZSTD))
    for name, expected in (
        ("log", b"small\n" + LARGE + b"\n"),
        ("1-", LARGE + b"\n"),
        ("0-9", b"small\n" + LARGE + b"\n"),
    ):
        fh = await orders.open(f"orders/0/{name}")
        threads.clear()
        assert await orders.read_on(fh, chunk=2**20) == expected
        assert threads
        await orders.filesystem.release(fh)


async def test_looking_up_a_record_in_a_large_batch_leaves_the_event_loop(orders: MountClient, threads):
    """If a batch is large, lookups of its records, `latest` and listings run in a thread.

    Attributes and content of a record in the batch are also read in a thread.
    """
    await put(orders, sealed(record(LARGE, key=b"k"), codec=Codec.ZSTD))
    fs, parent = orders.filesystem, orders.lookup("orders/0").node_id
    threads.clear()
    found = await fs.run_inline_or_in_thread(lambda: fs.lookup(parent, b"0"))
    assert found.attributes.size == len(LARGE)
    assert b"k" == await fs.run_inline_or_in_thread(lambda: fs.getxattr(found.node.node_id, "user.kafka.key"))
    opened = await fs.open(found.node.node_id, os.O_RDONLY, 1)
    assert b"xxx" == await fs.read(opened.fh, 0, 3)
    latest = await fs.run_inline_or_in_thread(lambda: fs.lookup(parent, b"latest"))
    assert "0" == await fs.run_inline_or_in_thread(lambda: fs.readlink(latest.node.node_id))
    assert 1 == (await fs.getattr(latest.node.node_id)).size
    fh = fs.opendir(parent)
    names = [entry.name for entry in await fs.run_inline_or_in_thread(lambda: list(fs.readdir(fh, 0)))]
    assert {"earliest", "latest", "log"} < set(names)
    assert len(threads) >= 6


def header_of(size: int) -> bytes:
    """Return the headers of a record that has one header with a value of `size` bytes."""
    return varint(1) + varint(1) + b"n" + varint(size) + bytes(size)


async def test_attributes_larger_than_a_kernel_takes_are_not_made(orders: MountClient):
    """An extended attribute above the kernel's limit is listed, but getxattr(2) fails with E2BIG.

    The record's other attributes can be read.
    """
    key = b"k" * LARGEST_XATTR_BYTES
    await put(
        orders,
        sealed(record(key=key + b"k", headers=empty_headers(LARGEST_XATTR_BYTES // 2))),
        sealed(record(key=key, headers=header_of(9))),
        sealed(record(headers=header_of(60_000))),
    )
    fs = orders.filesystem
    for offset, too_large in ((0, {"key", "headers"}), (1, set()), (2, {"headers"})):
        node_id = orders.lookup(f"orders/0/{offset}").node_id
        names = {name.removeprefix("user.kafka.") for name in fs.listxattr(node_id)}
        assert too_large <= names
        for name in too_large:
            with refused("E2BIG"):
                fs.getxattr(node_id, f"user.kafka.{name}")
        for name in names - too_large:
            assert len(fs.getxattr(node_id, f"user.kafka.{name}")) <= LARGEST_XATTR_BYTES


async def test_a_headers_count_of_zero_in_two_bytes_is_no_header(orders: MountClient):
    """A header count of zero that is encoded in two bytes does not add the attribute `user.kafka.headers`."""
    await put(orders, sealed(record(headers=b"\x80\0")))
    assert "user.kafka.headers" not in orders.filesystem.listxattr(orders.lookup("orders/0/0").node_id)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (sealed(record(headers=empty_headers(MAX_HEADERS + 1)), codec=Codec.ZSTD), "headers in a record"),
        (sealed(record(headers=empty_headers(MAX_HEADERS + 1))), "headers in a record"),
        (sealed(bytes(MAX_CONTENT_BYTES + 1), codec=Codec.ZSTD), "bytes inflated"),
        (
            sealed(SHORTEST_RECORD * (MAX_RECORDS + 1), count=MAX_RECORDS + 1, codec=Codec.ZSTD),
            "records in a batch",
        ),
        (sealed(bytes(MAX_CONTENT_BYTES + 1), codec=Codec.ZSTD, attributes=8), "bytes inflated"),
    ],
    ids=["headers", "plain headers", "content", "records", "LogAppendTime"],
)
async def test_a_batch_that_could_not_be_read_is_refused(orders: MountClient, batch, reason):
    """A batch that exceeds a limit of decoding is refused with EMSGSIZE and not stored; the reason names the limit."""
    with refused("EMSGSIZE") as caught:
        await put(orders, batch)
    assert reason in caught.reason
    assert 0 == (await orders.stat("orders/0/log")).size


async def test_batches_that_inflate_to_much_together_are_refused(orders: MountClient):
    """Batches that together exceed the limit of one append are refused in one write, and accepted in two writes."""
    batch = sealed(record(b"x" * (MAX_CONTENT_BYTES - 100)), codec=Codec.ZSTD)
    with refused("EMSGSIZE") as caught:
        await put(orders, batch * 3)
    assert "append less at a time" in caught.reason
    assert 0 == (await orders.stat("orders/0/log")).size
    await put(orders, batch, batch)
    assert 2 == orders.engine.partition("orders", 0).offsets().log_end_offset


async def test_compressed_batches_are_decoded_in_a_thread(orders: MountClient, threads):
    """The engine validates compressed batches in a thread, and plain batches in the event loop."""
    threads.clear()
    await put(orders, sealed(record()))
    assert [] == threads
    await put(orders, sealed(record()) + sealed(record(), codec=Codec.GZIP))
    assert 1 == len(threads)
    assert b"v\nv\nv\n" == await orders.cat("orders/0/log")


async def test_opening_ends_with_the_program_that_waits_for_it(engine: Engine, tmp_path: Path):
    """An open(2) that measures a file ends with EINTR if its program is killed or has ended."""

    def look(pid: int) -> Look | None:
        return {1: Look(1, stuck=True, pending=1 << 8), 2: Look(1, stuck=False, pending=0)}.get(pid)

    async with mounted(engine, tmp_path, look=look) as orders:
        await orders.mkdir("orders")
        await put(orders, *[sealed(record(LARGE), codec=Codec.ZSTD)] * 3)
        node_id = orders.lookup("orders/0/log").node_id
        for killed in (1, 3):
            with refused("EINTR"):
                await orders.filesystem.open(node_id, os.O_RDONLY, killed)
        for waits in (2, 0):
            fh = (await orders.filesystem.open(node_id, os.O_RDONLY, waits)).fh
            assert (await orders.filesystem.getattr(node_id)).size == 3 * len(LARGE) + 3
            await orders.filesystem.release(fh)


async def test_a_partition_whose_first_batch_cannot_be_read_is_listed(orders: MountClient, tmp_path):
    """If the first batch of a partition is damaged, its listing lacks `earliest` but has all other names."""
    await orders.append("orders/0/log", b"one\n")
    await orders.append("orders/0/log", b"two\n")
    flip_text(next(tmp_path.glob("data/orders-0/*.log")), b"one")
    names = orders.list("orders/0")
    assert {"log", "log.kv", "segments", "latest"} < set(names)
    assert "earliest" not in names


async def test_follow_shows_large_batches_in_parts_and_in_a_thread(orders: MountClient, threads):
    """`follow` decodes a large batch in a thread and returns it in parts; poll(2) decodes nothing."""
    fh = await orders.open("orders/0/follow")
    await put(orders, sealed(record(LARGE) + record(b"small", delta=1), count=2, codec=Codec.ZSTD))
    threads.clear()
    assert orders.filesystem.poll(fh, None)
    assert [] == threads
    seen = b""
    while not seen.endswith(b"small\n"):
        seen += await orders.filesystem.read(fh, len(seen), 2**20)
    assert (LARGE + b"\nsmall\n", True) == (seen, len(threads) > 0)
    await orders.filesystem.release(fh)


async def test_a_names_lookup_in_a_thread_keeps_its_reason(orders: MountClient):
    """A lookup that fails in a thread reports the same reason as a lookup that fails in the event loop."""
    await put(orders, sealed(record(LARGE), codec=Codec.ZSTD))
    fs, parent = orders.filesystem, orders.lookup("orders/0").node_id
    with refused("ENOENT") as caught:
        await fs.run_inline_or_in_thread(lambda: fs.lookup(parent, b"9"))
    assert "offsets 0 to 0 exist" in caught.reason
