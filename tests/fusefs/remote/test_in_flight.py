"""Large writes that are answered before their append has ended keep their order; close(2) reports failures."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
import trio.testing

from tests.doubles.mount_client import APPEND, mounted, refused
from tests.doubles.remote_client import Program, waiting
from tests.doubles.stalling_engine import StallingAppend, StallingEngine
from tests.fusefs.remote.conftest import killed_in_write
from topicfs.fusefs.appending.failed_write import MAX_REQUEST_BYTES
from topicfs.fusefs.appending.in_flight import LARGE_BYTES
from topicfs.fusefs.processes.signals import Look
from topicfs.storage.errors import PartitionOfflineError

BLOCKS = [b"%d " % number + b"x" * LARGE_BYTES + b"\n" for number in range(5)]
BEFORE = b"a\nb\nc\n"


@pytest.fixture
async def client(engine: StallingEngine, look: Callable[[int], Look]) -> AsyncIterator[Program]:
    async with mounted(engine, None, max_in_flight=3, look=look) as mount:
        yield Program(mount, 1)


@contextmanager
def failing_appends() -> Iterator[None]:
    """Let each append that ends during the block fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StallingAppend, "error", PartitionOfflineError("no answer"))
        yield


async def killed_while_writing(client: Program, engine: StallingEngine, ending: set[int]) -> int:
    """Return the handle of a file whose program was killed during its third write.

    The appends of all three writes are stalled. The first two writes have been answered.
    """
    engine.line.stall("append")
    fh = await client.open("orders/0/log", APPEND)
    for block in BLOCKS[:2]:
        await client.fs.write(fh, block)
    await killed_in_write(client, fh, BLOCKS[2], ending)
    return fh


async def test_writes_are_answered_while_some_are_under_way(client: Program, engine: StallingEngine) -> None:
    """With `max_in_flight` writes, all but the last are answered immediately.

    The last write is answered after the first append. close(2) waits for all appends.
    """
    engine.line.stall("append")
    fh = await client.open("orders/0/log", APPEND)
    for block in BLOCKS[:2]:
        await client.fs.write(fh, block)
    assert 0 == engine.line.calls["append"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.fs.write, fh, BLOCKS[2])
        await waiting(engine)
        engine.line.go_on()
    assert 1 == engine.line.calls["append"]
    await client.client.close(fh)
    assert BEFORE + b"".join(BLOCKS[:3]) == await client.cat("orders/0/log")


@pytest.mark.parametrize("last", [b"small\n", b"begun"])
async def test_a_small_write_waits_for_all_before_it(
    client: Program, engine: StallingEngine, last: bytes
) -> None:
    """A small write with a newline waits for the appends before it: it may be the program's last write.

    A small write without a newline does not wait.
    """
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, BLOCKS[0])
    await client.fs.write(fh, last)
    assert (2 if last.endswith(b"\n") else 0) == engine.line.calls["append"]
    await client.client.close(fh)
    assert BEFORE + BLOCKS[0] + last.rstrip() + b"\n" == await client.cat("orders/0/log")


async def test_a_failure_is_reported_by_the_next_write(client: Program) -> None:
    """After a failed append the next write fails, and its lines are dropped; the program can then continue."""
    fh = await client.open("orders/0/log", APPEND)
    for block in BLOCKS[:2]:
        await client.fs.write(fh, block)
    with failing_appends(), refused("EIO") as refusal:
        await client.fs.write(fh, b"small\n")
    assert "no answer" in refusal.reason
    await client.fs.write(fh, b"goes on\n")
    await client.client.close(fh)
    assert BEFORE + b"goes on\n" == await client.cat("orders/0/log")


async def test_a_failure_that_the_kernel_may_drop_is_reported_again(client: Program) -> None:
    """If the kernel may have dropped the error, the repeated request fails with the same error."""
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, (b"x" * 127 + b"\n") * (MAX_REQUEST_BYTES // 128))
    with failing_appends(), refused("EIO"):
        await client.fs.write(fh, b"rest\n")
    with refused("EIO"):
        await client.fs.write(fh, b"rest\n")
    await client.fs.write(fh, b"goes on\n")
    await client.client.close(fh)
    assert BEFORE + b"goes on\n" == await client.cat("orders/0/log")


@pytest.mark.parametrize("call", ["flush", "fsync"])
async def test_a_failure_is_reported_by_the_end(client: Program, call: str) -> None:
    """close(2) and fsync(2) wait for running appends, and fail if one of the appends fails."""
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, BLOCKS[0])
    with failing_appends(), refused("EIO") as refusal:
        await getattr(client.fs, call)(fh)
    assert "no answer" in refusal.reason
    await client.client.close(fh)
    assert BEFORE == await client.cat("orders/0/log")


async def test_lines_that_cannot_be_parsed_are_refused_at_once(
    client: Program, engine: StallingEngine
) -> None:
    """A line that cannot be parsed fails the write that contains it; earlier writes are stored."""
    fh = await client.open("orders/0/log.json", APPEND)
    await client.fs.write(fh, b'{"payload":"kept"}\n' * (LARGE_BYTES // 16))
    with refused("EINVAL"):
        await client.fs.write(fh, b"nonsense\n" * (LARGE_BYTES // 8))
    assert 0 == engine.line.calls["append"]
    await client.client.close(fh)
    assert BEFORE + b"kept\n" * (LARGE_BYTES // 16) == await client.cat("orders/0/log")


async def test_a_file_of_o_sync_waits_for_each_write(client: Program, engine: StallingEngine) -> None:
    """A write to a file that was opened with O_SYNC is answered after its append."""
    fh = await client.open("orders/0/log", APPEND | os.O_SYNC)
    await client.fs.write(fh, BLOCKS[0])
    assert 1 == engine.line.calls["append"]
    await client.client.close(fh)


async def test_answered_writes_of_a_killed_program_are_still_appended(
    client: Program, engine: StallingEngine, ending: set[int]
) -> None:
    """If a program is killed, its answered writes are still appended, and so is the write in which it was killed."""
    fh = await killed_while_writing(client, engine, ending)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.client.close, fh)
        await trio.testing.wait_all_tasks_blocked()
        engine.line.go_on()
    ending.clear()  # The reader is another program.
    assert BEFORE + b"".join(BLOCKS[:3]) == await client.cat("orders/0/log")


async def test_a_failed_append_of_a_killed_program_is_reported(
    client: Program, engine: StallingEngine, ending: set[int]
) -> None:
    """If an append fails after its program was killed, `@status` reports the lost lines."""
    fh = await killed_while_writing(client, engine, ending)
    with failing_appends():
        engine.line.go_on()
        while (
            "lines lost when the file was closed: Input/output error: no answer" not in client.client.reports
        ):
            await trio.sleep(0.001)
    await client.fs.release(fh)


async def test_the_close_of_a_duplicate_takes_no_error_away(client: Program) -> None:
    """An error that close(2) of a duplicate descriptor returned is returned again by the next write to the file."""
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, BLOCKS[0])
    client.client.still_held = True
    with failing_appends(), refused("EIO"):
        await client.fs.flush(fh)
    client.client.still_held = False
    with refused("EIO"):
        await client.fs.write(fh, BLOCKS[1])
    await client.fs.write(fh, BLOCKS[2])
    await client.client.close(fh)
    assert BEFORE + BLOCKS[2] == await client.cat("orders/0/log")


async def test_an_unfinished_line_after_a_lost_append_is_not_stored(client: Program) -> None:
    """After a failed append close(2) fails, and the unfinished line that follows is not stored."""
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, BLOCKS[0] + b"begun")
    with failing_appends(), refused("EIO"):
        await client.fs.flush(fh)
    await client.fs.release(fh)
    assert BEFORE == await client.cat("orders/0/log")


async def test_a_failure_after_a_close_is_reported(client: Program) -> None:
    """A failure that no later call can return is reported in `@status`."""
    fh = await client.open("orders/0/log", APPEND)
    await client.fs.write(fh, BLOCKS[0])
    with failing_appends():
        await client.fs.release(fh)
    assert "lines lost when the file was closed" in client.client.reports


async def test_lines_for_a_topic_go_to_the_partitions_of_their_keys(engine: StallingEngine) -> None:
    """Lines for a whole topic go to the partitions of their keys, in order."""
    engine.make("spread", partitions=3)
    async with mounted(engine, None, max_in_flight=3) as mount:
        program = Program(mount)
        fh = await program.open("spread/log.kv", APPEND)
        lines = [b"%d\t%d" % (number % 7, number) for number in range(LARGE_BYTES // 6)]
        text = b"\n".join(lines) + b"\n"
        await program.fs.write(fh, text)
        await program.client.close(fh)
        found = [
            line
            for number in range(3)
            for line in (await program.cat(f"spread/{number}/log.kv")).splitlines()
        ]
    for key in range(7):
        mine = [line for line in lines if line.startswith(b"%d\t" % key)]
        assert mine == [line for line in found if line.startswith(b"%d\t" % key)]
