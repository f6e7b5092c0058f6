"""The mount asks a remote engine for names and sizes only when a program needs them."""

from __future__ import annotations

import os

import pytest
import trio
import trio.testing

from tests.doubles.mount_client import APPEND, refused
from tests.doubles.remote_client import TIME, Program, waiting
from tests.doubles.stalling_engine import StallingEngine
from topicfs.fusefs.nodes import view_measurer


@pytest.mark.parametrize("name", ["1", "1.json", "0-1", "1-", "-2", "@5", "@5-", "@5-@7", "99"])
async def test_a_lookup_asks_nothing(client: Program, engine: StallingEngine, name: str):
    """A lookup does not ask the engine, because meanwhile the kernel could look up no other name of the directory."""
    await client.lookup(f"orders/0/{name}")
    assert not engine.line.calls


async def test_stat_and_open_resolve_a_name(client: Program, engine: StallingEngine):
    """stat(2) and open(2) resolve a name, and give ENOENT if it selects nothing; invalid names fail at the lookup."""
    for name in ("99", "@99999999999999", "5-9.kv"):
        node_id = (await client.lookup(f"orders/0/{name}")).node_id
        with refused("ENOENT"):
            await client.fs.getattr(node_id)
        with refused("ENOENT"):
            await client.fs.open(node_id, os.O_RDONLY, 0)
    for name in ("0x", "5.xml", "9-3"):
        with refused("ENOENT"):
            await client.lookup(f"orders/0/{name}")
    engine.partition("orders", 0).arrive(*[b"x"] * 97)
    assert b"x" == await client.cat("orders/0/99")
    assert (1, 1047 * 10**6) == (await client.stat("orders/0/50"))[1:3]


async def test_a_time_counted_from_now_goes_by_its_lookup(client: Program, monkeypatch: pytest.MonkeyPatch):
    """A time relative to now means the time of its lookup, and is looked up again after SELECTOR_CACHE_SECONDS."""
    monkeypatch.setattr("topicfs.fusefs.files.selector_files.SELECTOR_CACHE_SECONDS", -1.0)
    for later, content in ((1000, b"a\nb\nc\n"), (3000, b"")):
        monkeypatch.setattr("topicfs.fusefs.selectors.system_clock", lambda now=TIME + later: now)
        assert content == await client.cat("orders/0/@1s-")


async def test_the_kernel_may_remember_a_record_for_as_long_as_its_name(
    client: Program, monkeypatch: pytest.MonkeyPatch
):
    """The kernel may cache the attributes of a record for as long as the record's name.

    It may not cache the attributes of a range, because ranges grow.
    """
    monkeypatch.setattr("topicfs.fusefs.files.selector_files.SELECTOR_CACHE_SECONDS", 1000.0)
    assert 500 < (await client.stat("orders/0/1")).timeout <= 1000
    for name in ("1-", "0-1", "-2"):
        assert 0 == (await client.stat(f"orders/0/{name}")).timeout


async def test_sizes_are_those_known_so_far(client: Program, engine: StallingEngine):
    """stat(2) and open(2) do not read a log: they give size 1, or 0 for an empty log. Reads return the whole log."""
    engine.make("empty")
    assert 0 == (await client.stat("empty/0/log")).size
    for path in ("orders/0/log", "orders/log"):
        assert 1 == (await client.stat(path)).size
        fh = await client.open(path)
        assert 0 == (await client.stat(path)).size
        assert "read" not in engine.line.calls
        assert client.fs._files[fh].handle.direct_io
        assert b"a\nb\nc\n" == await client.client.read_on(fh)
        await client.client.close(fh)
        assert "read" in engine.line.calls
        engine.line.calls.clear()


@pytest.mark.parametrize("path", ["orders/0/log", "orders/log"])
async def test_close_fails_if_nothing_was_read_because_of_size_zero(client: Program, path: str):
    """If a program reads nothing because stat(2) gave 0, as tar does, close(2) gives EIO and a reason with a remedy."""
    fh = await client.open(path)
    await client.stat(path)
    with refused("EIO") as refusal:
        await client.fs.flush(fh)
    assert "topicfs mirror" in refusal.reason
    await client.fs.fsync(fh)
    await client.client.close(fh)
    fh = await client.open(path)
    await client.stat(path)
    await client.client.read_on(fh)
    await client.client.close(fh)


async def test_close_fails_if_a_copy_ends_at_a_size_that_is_too_small(
    client: Program, engine: StallingEngine, monkeypatch: pytest.MonkeyPatch
):
    """If a program stops reading at the size that stat(2) gave, but the log has more, close(2) fails with EIO."""
    partition = engine.partition("orders", 0)
    for _ in range(200):
        partition.arrive(b"x" * 10_000)
    monkeypatch.setattr(view_measurer, "SLICE_BYTES", 10_000)
    first, second = [await client.open("orders/0/log") for _ in range(2)]
    await client.fs.read(first, 0, 6)
    size = (await client.stat("orders/0/log")).size
    assert 6 <= size < 6 + 200 * 10_001
    await client.fs.read(second, 0, size)
    with refused("EIO"):
        await client.fs.flush(second)
    await client.client.close(first)


async def test_stat_gives_the_size_read_and_measures_the_rest_in_the_background(
    client: Program, engine: StallingEngine
):
    """stat(2) gives at least the size that was read, and starts measuring; open(2) waits for the measurement."""
    fh = await client.open("orders/0/log")
    await client.client.read_on(fh)
    engine.partition("orders", 0).arrive(b"d")
    engine.line.stall()
    assert 6 == (await client.stat("orders/0/log")).size
    await waiting(engine, 1)
    engine.line.go_on()
    with trio.fail_after(20):
        while (await client.stat("orders/0/log")).size != 8:
            await trio.sleep(0.01)
    assert b"d\n" == await client.fs.read(fh, 6, 100)
    engine.partition("orders", 0).arrive(b"e")
    await client.open("orders/0/log")
    assert 10 == (await client.stat("orders/0/log")).size


async def test_an_empty_log_that_somebody_has_open_grows(client: Program, engine: StallingEngine):
    """If an empty log is open, as in `tail -f`, its size grows with new records even before any read."""
    partition = engine.make("empty").all[0]
    fh = await client.open("empty/0/log")
    assert b"" == await client.fs.read(fh, 0, 100)
    partition.arrive(b"first")
    with trio.fail_after(20):
        while (await client.stat("empty/0/log")).size != 6:
            await trio.sleep(0.01)
    assert b"first\n" == await client.fs.read(fh, 0, 100)


async def test_a_program_that_only_appends_causes_no_reads(client: Program, engine: StallingEngine):
    """A program that only appends causes no reads of the log, even if it calls stat(2)."""
    engine.make("empty")
    await client.cat("orders/0/log")
    for path in ("empty/0/log", "orders/0/log"):
        before = engine.line.calls["read"]
        fh = await client.open(path, APPEND)
        for _ in range(3):
            await client.fs.write(fh, b"line\n")
            await client.stat(path)
            await trio.testing.wait_all_tasks_blocked(
                0.02
            )  # Let a background measurement run if one was started.
        assert before == engine.line.calls["read"]
        await client.client.close(fh)


async def test_a_size_request_reads_little_beyond_the_measured_part(
    client: Program, engine: StallingEngine, monkeypatch
):
    """open(2) and stat(2) read only a little of the log beyond its measured part."""
    partition = engine.partition("orders", 0)
    for _ in range(200):
        partition.arrive(b"x" * 10_000)
    monkeypatch.setattr(view_measurer, "SLICE_BYTES", 10_000)
    fh = await client.open("orders/0/log")
    await client.fs.read(fh, 0, 6)
    before = engine.line.calls["read"]
    await client.open("orders/0/log")
    assert engine.line.calls["read"] - before < 16
    assert (await client.stat("orders/0/log")).size < 6 + 200 * 10_001


async def test_the_time_of_a_log_changes_with_what_arrives(client: Program, engine: StallingEngine):
    """The mtime of a log changes when records arrive: if the size is unknown, `tail -f` needs the mtime."""
    before = (await client.stat("orders/0/log")).mtime_ns
    engine.partition("orders", 0).arrive(b"d", time=TIME + 7)
    assert 5_000_000 == (await client.stat("orders/0/log")).mtime_ns - before


async def test_a_topic_that_was_missing_for_a_while_is_there_again(client: Program, engine: StallingEngine):
    """If a topic is recreated between two lookups, its name shows the new partitions."""
    assert b"a" == await client.cat("orders/0/0")
    engine.make("orders", partitions=2).all[1].arrive(b"d", time=TIME)
    await trio.testing.wait_all_tasks_blocked()
    assert b"d" == await client.cat("orders/1/0")
