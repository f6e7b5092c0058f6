"""Logs and open-ended ranges: their sizes, their nodes after records were deleted, and attributes that are cached."""

from __future__ import annotations

import os

import pytest

from tests.doubles.mount_client import APPEND, MountClient, refused
from topicfs.fusefs.nodes.nodes import LONG_CACHE_SECONDS
from topicfs.fusefs.views.rendering import TEXT_WINDOW_BYTES
from topicfs.storage.model import Offset


def lines(start: int, end: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(start, end))


async def test_sizes_are_exact_in_every_form(orders: MountClient):
    """stat(2) gives exactly the number of bytes that a reader gets, in each form."""
    await orders.append("orders/0/log.kv", b"k\tv\nno key\nk\t\\N\n")

    for name in ("log", "log.kv", "log.json", "1-", "0-1.kv", "-2.json"):
        assert (await orders.stat(f"orders/0/{name}")).size == len(await orders.cat(f"orders/0/{name}"))


@pytest.mark.parametrize("chunk", [1, 7, 4096])
async def test_reads_of_any_size_give_the_same_bytes(orders: MountClient, chunk: int):
    """Reads of any size return the same bytes, from any position."""
    await orders.append("orders/0/log", lines(0, 50))

    fh = await orders.open("orders/0/log")

    assert await orders.read_on(fh, chunk=chunk) == lines(0, 50)
    assert await orders.read_on(fh, 100, chunk=chunk) == lines(0, 50)[100:]
    assert b"" == await orders.filesystem.read(fh, 10_000, 10)


async def test_the_block_size_in_stat_is_a_window(orders: MountClient):
    """st_blksize of logs and ranges is TEXT_WINDOW_BYTES, so that one read request returns one window."""
    await orders.append("orders/0/log", lines(0, 3))
    for name in ("log", "log.json", "1-"):
        assert TEXT_WINDOW_BYTES == (await orders.stat(f"orders/0/{name}")).block_size


async def test_an_open_file_sees_the_log_grow(orders: MountClient):
    """Open files show records that are appended later."""
    await orders.append("orders/0/log", b"a\n")
    fh = await orders.open("orders/0/log")
    tail = await orders.open("orders/0/1-")
    await orders.append("orders/0/log", b"b\n")

    assert b"b\n" == await orders.read_on(fh, 2)
    assert b"b\n" == await orders.read_on(tail)


async def test_the_kernel_forgets_attributes_that_an_append_made_wrong(orders: MountClient):
    """After an append through `log`, the kernel's cached attributes of other nodes are invalidated once."""
    log, kv = orders.lookup("orders/0/log"), orders.lookup("orders/0/log.kv")
    assert LONG_CACHE_SECONDS == (await orders.filesystem.getattr(log.node_id)).timeout
    await orders.append("orders/0/log", b"a\n")
    await orders.append("orders/0/log", b"b\n")

    assert orders.kernel.attributes == [kv.node_id]


async def test_a_refused_write_invalidates_no_cached_attributes(orders: MountClient):
    """A refused write to `log` invalidates no cached attributes; a later append through another file does."""
    log = orders.lookup("orders/0/log")
    with refused("EMSGSIZE"):
        await orders.append("orders/0/log", b"x" * 1_100_000 + b"\n")
    await orders.append("orders/log", b"a\n")

    assert orders.kernel.attributes == [log.node_id]


async def test_a_write_to_the_topics_log_invalidates_attributes_of_a_partition(orders: MountClient):
    """A write to the topic's log invalidates the cached attributes of the partition's log."""
    log = orders.lookup("orders/0/log")
    await orders.append("orders/log", b"a\n")

    assert orders.kernel.attributes == [log.node_id]
    assert 2 == (await orders.filesystem.getattr(log.node_id)).size


def remove_front(client: MountClient, before: int) -> None:
    client.engine.partition("orders", 0).delete_records(Offset(before))


async def test_removing_the_front_gives_the_name_a_new_node_that_shows_the_same_number(orders: MountClient):
    """If the first records of a log are deleted, `log` gets a new node, but keeps its inode number for `tail -F`."""
    await orders.append("orders/0/log", lines(0, 9))
    old = orders.lookup("orders/0/log")
    shown = (await orders.filesystem.getattr(old.node_id)).ino
    remove_front(orders, 4)

    new = orders.lookup("orders/0/log")

    assert new.node_id != old.node_id
    assert (await orders.filesystem.getattr(new.node_id)).ino == shown == old.node_id
    assert await orders.cat("orders/0/log") == lines(4, 9)
    assert (orders.lookup("orders/0").node_id, "log") in orders.kernel.names


async def test_an_old_handle_keeps_its_positions(orders: MountClient):
    """An open file keeps its positions when records are deleted: deleted bytes give ESTALE, new records are shown."""
    await orders.append("orders/0/log", lines(0, 9))
    fh = await orders.open("orders/0/log")
    remove_front(orders, 4)
    await orders.append("orders/0/log", lines(9, 10))

    with refused("ESTALE"):
        await orders.filesystem.read(fh, 0, 10)
    assert await orders.read_on(fh, len(lines(0, 4))) == lines(4, 10)
    assert 1 == (await orders.filesystem.getattr(orders.filesystem.root.node_id)).ino


async def test_opening_an_outdated_node_is_stale(orders: MountClient):
    """Opening a node that was replaced fails with ESTALE, so that the kernel looks up its name again."""
    await orders.append("orders/0/log", lines(0, 9))
    node = orders.lookup("orders/0/log")
    remove_front(orders, 4)

    with refused("ESTALE"):
        await orders.filesystem.open(node.node_id, os.O_RDONLY, 1)


async def test_a_name_keeps_its_node_while_nothing_is_removed(orders: MountClient):
    """Appends do not change the node of a name."""
    node = orders.lookup("orders/0/log")
    await orders.append("orders/0/log", lines(0, 9))

    assert orders.lookup("orders/0/log") is node


async def test_forgotten_nodes_are_let_go(orders: MountClient):
    """A node is removed after the kernel has returned all references to the node."""
    node = orders.lookup("orders/0/log")
    orders.lookup("orders/0/log")
    orders.filesystem.forget([(node.node_id, 1)])
    assert orders.lookup("orders/0/log") is node

    orders.filesystem.forget([(node.node_id, 2)])

    with refused("ESTALE"):
        await orders.filesystem.getattr(node.node_id)
    assert orders.lookup("orders/0/log") is not node


@pytest.mark.parametrize("suffix", ["", ".kv", ".json"])
async def test_a_few_lines_are_fetched_once_to_measure_and_to_show_them(
    orders: MountClient, monkeypatch: pytest.MonkeyPatch, suffix: str
):
    """If stat(2) and then a read see new lines, as in `tail -f`, the lines are fetched only once."""
    await orders.append("orders/0/log", lines(0, 1))
    written, fh = await orders.open("orders/0/log", APPEND), await orders.open(f"orders/0/log{suffix}")
    seen = await orders.read_on(fh)
    partition = orders.engine.partition("orders", 0)
    read, reads = partition.read, []
    monkeypatch.setattr(partition, "read", lambda *of, **how: reads.append(of) or read(*of, **how))
    for number in range(1, 4):
        await orders.filesystem.write(written, lines(number, number + 1))
        size = (await orders.stat(f"orders/0/log{suffix}")).size
        seen += await orders.filesystem.read(fh, len(seen), 4096)
        assert len(seen) == size
    assert [(1,), (2,), (3,)] == reads
    assert seen == await orders.cat(f"orders/0/log{suffix}")


async def test_the_root_is_never_forgotten(client: MountClient):
    """The root node remains when the kernel returns its reference to the root at the unmount."""
    client.filesystem.forget([(1, 1)])

    assert ["@groups", "@queues", "@status"] == client.list()


async def test_the_kernel_does_not_hold_ever_more_selectors(
    orders: MountClient, monkeypatch: pytest.MonkeyPatch
):
    """Beyond MAX_SELECTOR_NODES selectors, the kernel is asked to drop the oldest, so that memory stays bounded."""
    monkeypatch.setattr("topicfs.fusefs.filesystem.MAX_SELECTOR_NODES", 10)
    await orders.append("orders/0/log", lines(0, 30))

    for offset in range(30):
        orders.lookup(f"orders/0/{offset}")

    assert [name for _, name in orders.kernel.names] == [str(offset) for offset in range(20)]


@pytest.mark.parametrize(("size", "accepted"), [(0, False), (14, True), (1, False), (15, False)])
async def test_only_a_truncation_to_the_present_size_succeeds(orders: MountClient, size: int, accepted: bool):
    """truncate(2) to the present size succeeds; truncating to any other size, even 0, fails with EPERM."""
    await orders.append("orders/0/log", lines(0, 2))

    if accepted:
        await orders.truncate("orders/0/log", size)
    else:
        with refused("EPERM"):
            await orders.truncate("orders/0/log", size)

    assert await orders.cat("orders/0/log") == lines(0, 2)


async def test_an_empty_log_can_be_emptied(orders: MountClient):
    """truncate(2) of an empty log to 0 succeeds."""
    await orders.truncate("orders/0/log", 0)


@pytest.mark.parametrize("path", ["orders/0/log", "orders/log"])
async def test_a_file_opened_with_o_trunc_can_be_truncated_to_zero(orders: MountClient, path: str):
    """After an open with O_TRUNC, ftruncate(2) accepts only 0 until the first write, and then only the written size."""
    await orders.append("orders/0/log", lines(0, 2))
    fh = await orders.open(path, os.O_WRONLY | os.O_TRUNC)

    await orders.truncate(path, 0, fh)
    with refused("EPERM"):
        await orders.truncate(path, 1, fh)
    await orders.filesystem.write(fh, lines(2, 3))
    with refused("EPERM"):
        await orders.truncate(path, 0, fh)
    await orders.truncate(path, len(lines(2, 3)), fh)
    await orders.close(fh)

    assert await orders.cat("orders/0/log") == lines(0, 3)


@pytest.mark.parametrize("path", ["orders/0/log", "orders/log"])
async def test_a_program_that_truncated_writes_at_its_own_end_alone(orders: MountClient, path: str):
    """After an open with O_TRUNC, each write must begin where the last one ended; O_APPEND allows any position."""
    await orders.append("orders/0/log", lines(0, 2))
    fh = await orders.open(path, os.O_WRONLY | os.O_TRUNC)
    size = await orders.filesystem.write(fh, lines(2, 3), 0)
    for position in (0, size - 1, size + 1, 3 * size, 2**63 - 1):
        with refused("EPERM"):
            await orders.filesystem.write(fh, lines(9, 10), position)
    await orders.filesystem.write(fh, lines(3, 4), size)
    await orders.close(fh)
    assert "copy a sparse file with cp --sparse=never" in orders.reports
    for flags in (APPEND, APPEND | os.O_TRUNC):
        fh = await orders.open(path, flags)
        await orders.filesystem.write(fh, lines(4, 5), 2**40)
        await orders.close(fh)
    assert await orders.cat("orders/0/log") == lines(0, 5) + lines(4, 5)


@pytest.mark.parametrize("path", ["orders/0/log", "orders/log"])
async def test_an_appender_cannot_empty_a_log(orders: MountClient, path: str):
    """ftruncate(2) to 0 of a file opened with O_APPEND fails with EPERM, because the records stay."""
    await orders.append("orders/0/log", lines(0, 2))
    fh = await orders.open(path, APPEND)

    with refused("EPERM"):
        await orders.truncate(path, 0, fh)
    await orders.close(fh)


async def test_mtime_is_the_newest_records_time(orders: MountClient):
    """The mtime of a log is the newest record's timestamp.

    A remount therefore does not change the mtime, and rsync does not copy a log again.
    """
    await orders.append("orders/0/log.json", b'{"payload":"a","ts":1700000000123}\n')

    assert 1_700_000_000_123_000_000 == (await orders.stat("orders/0/log")).mtime_ns
    assert 1_700_000_000_123_000_000 == (await orders.stat("orders/0")).mtime_ns


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ("", True),
        ("message.timestamp.type=LogAppendTime\n", False),
        ("cleanup.policy=compact\n", False),
        ("cleanup.policy=compact,delete\n", True),
        ("retention.ms=-1\n", False),
    ],
)
async def test_appending_records_older_than_the_retention_is_reported(
    orders: MountClient, settings: str, warned: bool
):
    """Appending records older than retention.ms causes a warning that they will soon be deleted.

    There is no warning if the log sets the timestamps itself, or deletes no records by age.
    """
    await orders.append("orders/config", f"retention.ms=1000\n{settings}".encode())
    await orders.append("orders/0/log.json", b'{"ts":5,"key":"k","payload":"old"}\n')
    assert warned == ("retention will soon delete them with their segment" in orders.reports)
