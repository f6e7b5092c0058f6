"""The files of records and ranges, selected by offset or by time."""

from __future__ import annotations

import json

import pytest

from tests.doubles.mount_client import APPEND, MountClient, refused
from topicfs.storage.model import Offset

TIMES = [1000, 3000, 2000, 4000]


@pytest.fixture
async def timed(orders: MountClient) -> MountClient:
    """A mount with the records a, b, c and d; c has an earlier timestamp than b."""
    for value, time in zip("abcd", TIMES, strict=True):
        await orders.append("orders/0/log.json", json.dumps({"payload": value, "ts": time}).encode() + b"\n")
    return orders


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1", b"b"),
        ("1-2", b"b\nc\n"),
        ("1-1", b"b\n"),
        ("2-99", b"c\nd\n"),
        ("2-", b"c\nd\n"),
        ("4-", b""),
        ("4-9", b""),
        ("-1", b"d\n"),
        ("-99", b"a\nb\nc\nd\n"),
        ("@2000", b"b"),
        ("@3001", b"d"),
        ("@0", b"a"),
        ("@1970-01-01T00:00:03.5", b"d"),
        ("@2000-@4000", b"b\nc\n"),
        ("@3500-", b"d\n"),
        ("@5000-", b""),
        ("@5000-@6000", b""),
        ("3.kv", b"\\N\td\n"),
        ("0-0.kv", b"\\N\ta\n"),
    ],
)
async def test_a_range_is_cut_at_the_ends_of_the_log(timed: MountClient, name: str, content: bytes):
    """A range includes its last offset and is cut at the ends of the log; the file of a record adds no newline."""
    assert await timed.cat(f"orders/0/{name}") == content
    assert (await timed.stat(f"orders/0/{name}")).size == len(content)


@pytest.mark.parametrize(("name", "expected"), [("1", [(1,)]), ("@2500", []), ("@2500.json", [])])
async def test_a_record_is_read_once(
    timed: MountClient, monkeypatch: pytest.MonkeyPatch, name: str, expected: list[tuple[int]]
):
    """Looking up and reading a record fetches it once. A search by time keeps the record that it has fetched."""
    monkeypatch.setattr("topicfs.fusefs.files.selector_files.SELECTOR_CACHE_SECONDS", 1000.0)
    partition = timed.engine.partition("orders", 0)
    read, reads = partition.read, []
    monkeypatch.setattr(partition, "read", lambda *of, **how: reads.append(of) or read(*of, **how))
    assert b"b" in await timed.cat(f"orders/0/{name}")
    assert expected == reads


@pytest.mark.parametrize(
    "name", ["4", "5-", "3-2", "-0", "@4001", "@2000-@1000", "04", "4.batch.json", "@", "@x", "--1"]
)
async def test_what_selects_nothing_does_not_exist(timed: MountClient, name: str):
    """A name that selects no record gives ENOENT."""
    with refused("ENOENT"):
        timed.lookup(f"orders/0/{name}")


@pytest.mark.parametrize("name", ["4", "5-", "@4001"])
async def test_the_reports_say_which_offsets_exist(timed: MountClient, name: str):
    """The report for ENOENT names the offsets that exist."""
    with refused("ENOENT"):
        timed.lookup(f"orders/0/{name}")

    assert f"orders/0/{name}" in timed.reports
    assert "offsets 0 to 3 exist" in timed.reports


async def test_a_null_value_is_an_empty_file(orders: MountClient):
    """A record whose value is null (a tombstone) is an empty file, and an empty line in `log`."""
    await orders.append("orders/0/log.kv", b"k\t\\N\n")

    assert b"" == await orders.cat("orders/0/0")
    assert b"\n" == await orders.cat("orders/0/log")


async def test_a_record_shows_its_time(timed: MountClient):
    """A record's mtime is its timestamp."""
    assert 3000 * 1_000_000 == (await timed.stat("orders/0/1")).mtime_ns


async def test_the_last_records_are_those_of_the_lookup(timed: MountClient):
    """While `-1` is open, another lookup returns the same node, and the file keeps its records."""
    fh = await timed.open("orders/0/-1")
    node = timed.lookup("orders/0/-1")
    await timed.append("orders/0/log", b"e\n")

    assert timed.lookup("orders/0/-1") is node
    assert b"d\n" == await timed.read_on(fh)


async def test_the_last_records_are_resolved_again_after_a_second(
    timed: MountClient, monkeypatch: pytest.MonkeyPatch
):
    """If `-1` is not open, it is resolved again after SELECTOR_CACHE_SECONDS."""
    monkeypatch.setattr("topicfs.fusefs.files.selector_files.SELECTOR_CACHE_SECONDS", -1.0)
    assert b"d\n" == await timed.cat("orders/0/-1")
    await timed.append("orders/0/log", b"e\n")

    assert b"e\n" == await timed.cat("orders/0/-1")


@pytest.mark.parametrize(
    ("name", "first", "later"),
    [
        ("orders/0/@1s", b"b", b"d"),
        ("orders/0/@1s-", b"b\nc\nd\n", b"d\n"),
        ("orders/0/@2s-@1s", b"a\n", b"b\nc\n"),
        ("orders/@1s-", b"b\nc\nd\n", b"d\n"),
    ],
)
async def test_a_time_counted_from_now_is_resolved_again_after_a_second(
    timed: MountClient, monkeypatch: pytest.MonkeyPatch, name: str, first: bytes, later: bytes
):
    """After SELECTOR_CACHE_SECONDS, a time relative to now is resolved again, for partitions and topics."""
    monkeypatch.setattr("topicfs.fusefs.files.selector_files.SELECTOR_CACHE_SECONDS", -1.0)
    monkeypatch.setattr("topicfs.fusefs.selectors.system_clock", lambda: 3000)
    assert first == await timed.cat(name)
    monkeypatch.setattr("topicfs.fusefs.selectors.system_clock", lambda: 5000)
    assert later == await timed.cat(name)


@pytest.mark.parametrize("name", ["orders/0/@1s", "orders/0/@1s-", "orders/@1s-"])
async def test_a_time_counted_from_now_is_that_of_its_lookup(
    timed: MountClient, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Within SELECTOR_CACHE_SECONDS, a time relative to now keeps its node and its records."""
    monkeypatch.setattr("topicfs.fusefs.files.selector_files.SELECTOR_CACHE_SECONDS", 1000.0)
    monkeypatch.setattr("topicfs.fusefs.selectors.system_clock", lambda: 3000)
    node, content = timed.lookup(name), await timed.cat(name)
    monkeypatch.setattr("topicfs.fusefs.selectors.system_clock", lambda: 5000)
    assert timed.lookup(name) is node
    assert content == await timed.cat(name)


async def test_a_closed_range_reaches_further_once_the_log_does(timed: MountClient):
    """If a range ends after the log's end, a new lookup of the name includes records appended since the last lookup."""
    assert b"d\n" == await timed.cat("orders/0/3-4")
    await timed.append("orders/0/log", b"e\nf\n")

    assert b"d\ne\n" == await timed.cat("orders/0/3-4")


@pytest.mark.parametrize("name", ["1", "1.json", "1-2", "1-", "-1", "@0", "follow"])
async def test_a_selector_cannot_be_written(timed: MountClient, name: str):
    """Opening a selector for writing, or truncating it, fails with EPERM, even for root."""
    with refused("EPERM"):
        await timed.open(f"orders/0/{name}", APPEND)
    with refused("EPERM"):
        await timed.truncate(f"orders/0/{name}", 0)


async def test_a_deleted_record_is_stale_under_an_old_name(timed: MountClient):
    """After a record was deleted, its old node gives ESTALE, and a lookup of its name gives ENOENT."""
    node = timed.lookup("orders/0/1")
    timed.engine.partition("orders", 0).delete_records(Offset(2))

    with refused("ESTALE"):
        await timed.filesystem.open(node.node_id, 0, 1)
    with refused("ENOENT"):
        timed.lookup("orders/0/1")


async def test_a_large_record_is_read_when_it_is_opened(orders: MountClient):
    """The content of a large record is not kept with its node, but read when the file is opened."""
    value = b"x" * 500_000
    await orders.append("orders/0/log", value + b"\n")

    assert (await orders.stat("orders/0/0")).size == len(value)
    assert await orders.cat("orders/0/0") == value


async def test_extended_attributes_tell_a_records_metadata(orders: MountClient):
    """Extended attributes have a record's metadata; if a field is null, its attribute does not exist."""
    line = {"key": "k", "payload": "v", "ts": 1234, "headers": ["h", "1", "h", None]}
    await orders.append("orders/0/log.json", json.dumps(line).encode() + b"\n")
    await orders.append("orders/0/log", b"plain\n")
    keyed, plain = (orders.lookup(f"orders/0/{offset}").node_id for offset in (0, 1))

    names = orders.filesystem.listxattr(keyed)

    assert {
        "user.kafka.timestamp": b"1234",
        "user.kafka.timestamp_type": b"CreateTime",
        "user.kafka.leader_epoch": b"0",
        "user.kafka.batch": b"base_offset 0 position 0 segment 00000000000000000000.log",
        "user.kafka.key": b"k",
        "user.kafka.headers": b'["h","1","h",null]',
    } == {name: orders.filesystem.getxattr(keyed, name) for name in names}
    assert "user.kafka.key" not in orders.filesystem.listxattr(plain)
    for name in ("user.kafka.key", "user.kafka.nothing", "security.capability"):
        with refused("ENODATA"):
            orders.filesystem.getxattr(plain, name)
