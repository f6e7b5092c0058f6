"""The open file `take` of a queue, over the embedded engine."""

from __future__ import annotations

import errno
import select
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.doubles.records import NOW, records
from tests.doubles.waiting import TIMEOUT_SECONDS
from tests.fusefs.groups.conftest import AGAIN, errno_of
from topicfs.coordination.engine import Engine
from topicfs.coordination.shares.group import QueueSession
from topicfs.fusefs.following.waiting_reads import Program, WaitingReads
from topicfs.fusefs.forms import JSON, VALUES, Form
from topicfs.fusefs.groups.queue import TakeHandle
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.replication import open_engine
from topicfs.storage.codec.records import encode
from topicfs.storage.errors import InvalidConfigError, RecordNotHeldError, UnknownTopicError
from topicfs.storage.model import TopicPartition

PLACE = TopicPartition("orders", 0)


class Queue:
    """A queue of the topic `orders`, and the open files of the queue."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting = WaitingReads(BlockingCalls())

    def add(self, *values: bytes) -> None:
        self.engine.partition(*PLACE).append(encode(records(values, timestamp=NOW)))

    def open(self, *, form: Form = VALUES, nonblocking: bool = True) -> Taker:
        session = self.engine.share_groups.group("g").open(["orders"], holder="bash 7")
        program = Program(self.waiting, 7, "/@queues/g/orders/take")
        handle = TakeHandle(session, form, program, BlockingCalls(), nonblocking=nonblocking)
        return Taker(handle, session)

    @property
    def lag(self) -> int:
        (position,) = self.engine.share_groups.group("g").positions("orders")
        return position.lag


class Taker:
    """An open file, and the position that the kernel keeps for it."""

    def __init__(self, handle: TakeHandle, session: QueueSession) -> None:
        self.handle = handle
        self.session = session
        self.position = 0

    async def read(self, size: int = 100) -> bytes:
        data = await self.handle.read(self.position, size)
        self.position += len(data)
        return data

    async def say(self, line: str) -> None:
        self.position += await self.handle.write(self.position, f"{line}\n".encode())


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    engine = open_engine(tmp_path / "data")
    engine.create_topic("orders")
    yield Queue(engine)
    engine.close()


async def test_each_read_is_one_record(queue: Queue):
    """Each record is read through one open file only, in several reads if it is longer than the requested size."""
    queue.add(b"a", b"bcd", b"e")
    one, other = queue.open(), queue.open()

    assert [b"a\n", b"bc", b"d\n"] == [await one.read(), await one.read(2), await one.read(2)]
    assert b"e\n" == await other.read()
    assert AGAIN == await errno_of(one.read())


async def test_an_accepted_record_is_stored_when_write_returns(queue: Queue):
    """The command `accept` accepts the record that was read last; when write(2) returns, the acceptance is stored."""
    queue.add(b"a", b"b")
    taker = queue.open()
    await taker.read()
    await taker.say("accept")

    assert 1 == queue.lag
    assert b"b\n" == await taker.read()


async def test_a_released_record_is_read_again_and_a_rejected_one_is_not(queue: Queue):
    """A released record is read again, and a rejected record is not."""
    queue.add(b"a", b"b")
    taker = queue.open()
    await taker.read()
    await taker.say("release")
    assert b"a\n" == await taker.read()
    await taker.say("reject")
    assert b"b\n" == await taker.read()
    await taker.say("renew")
    await taker.say("accept")

    assert 0 == queue.lag
    assert [0] == [one.record_name.offset for one in queue.engine.share_groups.group("g").rejected("orders")]


async def test_a_record_by_its_name(queue: Queue):
    """A command can name any of the records that the file holds."""
    queue.add(b"a", b"b")
    taker = queue.open()
    await taker.read()
    await taker.read()
    await taker.say("release orders-0-0")

    assert b"a\n" == await taker.read()


async def test_a_close_releases_the_held_records(queue: Queue):
    """close(2) immediately releases the records that the file holds."""
    queue.add(b"a")
    taker = queue.open()
    await taker.read()
    await taker.handle.release()

    assert b"a\n" == await queue.open().read()


async def test_unknown_words_are_refused(queue: Queue):
    """An unknown command fails, and so does a command about a record that the file does not hold."""
    queue.add(b"a")
    taker = queue.open()
    assert isinstance(await errno_of(taker.say("accept")), RecordNotHeldError)
    assert isinstance(await errno_of(taker.say("done")), InvalidConfigError)
    assert isinstance(await errno_of(taker.say("accept orders")), InvalidConfigError)
    assert b"a\n" == await taker.read()
    assert isinstance(await errno_of(taker.say("accept orders-0-7")), RecordNotHeldError)


async def test_seeking_back_ends_at_the_record_that_was_read_last(queue: Queue):
    """A program can seek back only within the record that it read last; seeking further back fails with ESPIPE."""
    queue.add(b"a", b"b")
    taker = queue.open()
    await taker.read()
    await taker.read()
    taker.position -= 2
    assert b"b\n" == await taker.read()
    taker.position = 0

    assert errno.ESPIPE == await errno_of(taker.read())


async def test_a_read_waits_for_a_record(queue: Queue, nursery: trio.Nursery):
    """A read waits until a record is appended."""
    taker, seen = queue.open(nonblocking=False), []

    async def read() -> None:
        seen.append(await taker.read())

    nursery.start_soon(read)
    while not len(queue.waiting):
        await trio.sleep(0.001)
    queue.add(b"a")
    while not seen:
        await trio.sleep(0.001)

    assert [b"a\n"] == seen


async def test_json_tells_where_a_record_is_from(queue: Queue):
    """`take.json` shows the offset of a record."""
    queue.add(b"a")

    assert b'"offset":0' in await queue.open(form=JSON).read(1000)


class Kernel:
    """The kernel of a program that waits in poll(2); after each notification the program polls again."""

    def __init__(self, taker: Taker) -> None:
        self.taker = taker
        self.notified = 0

    def notify(self) -> None:
        self.notified += 1

    async def until_readable(self) -> None:
        while not self.taker.handle.poll(self) & select.POLLIN:
            seen = self.notified
            while seen == self.notified:
                await trio.sleep(0.001)


async def test_poll_tells_of_a_record(queue: Queue):
    """After poll(2) has found a record, the file holds the record for its next read."""
    taker = queue.open()
    assert 0 == taker.handle.poll(Kernel(taker)) & select.POLLIN
    with trio.fail_after(TIMEOUT_SECONDS):
        async with trio.open_nursery() as polls:
            polls.start_soon(Kernel(taker).until_readable)
            await trio.testing.wait_all_tasks_blocked()
            queue.add(b"a")
    assert AGAIN == await errno_of(queue.open().read())
    assert b"a\n" == await taker.read()
    assert 0 == taker.handle.poll(None) & select.POLLIN


async def test_a_record_that_arrives_during_a_poll_is_reported(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    """A record is reported even if it arrives after a thread found none and before the event loop gets this result."""
    taker = queue.open()
    session, looks = taker.session, []
    take = session.take

    def look() -> object:
        found = take()
        looks.append(found)
        if len(looks) == 1:
            queue.add(b"a")
        return found

    monkeypatch.setattr(session, "take", look)
    with trio.fail_after(TIMEOUT_SECONDS):
        await Kernel(taker).until_readable()

    assert looks[0] is None
    assert b"a\n" == await taker.read()


async def test_a_program_that_no_longer_waits_holds_nothing(queue: Queue):
    """After its poll(2) timed out, a program holds no record, and later records are free for other programs."""
    taker = queue.open()
    taker.handle.poll(Kernel(taker))
    await trio.testing.wait_all_tasks_blocked()
    assert AGAIN == await errno_of(taker.read())  # This read runs after the search that poll(2) started.
    queue.add(b"a")
    await trio.testing.wait_all_tasks_blocked()

    assert b"a\n" == await queue.open().read()


async def test_polls_that_do_not_wait_find_a_record(queue: Queue):
    """poll(2) with a timeout of zero, called repeatedly, finds a record."""
    queue.add(b"a")
    taker = queue.open()
    with trio.fail_after(TIMEOUT_SECONDS):
        while not taker.handle.poll(None) & select.POLLIN:
            await trio.sleep(0.001)

    assert b"a\n" == await taker.read()


async def test_the_error_of_a_poll_is_the_next_reads(queue: Queue):
    """If a poll fails, the file is readable, and the next read raises the error of the poll."""
    taker = queue.open()
    queue.engine.delete_topic("orders")
    with trio.fail_after(TIMEOUT_SECONDS):
        await Kernel(taker).until_readable()

    assert isinstance(await errno_of(taker.read()), UnknownTopicError)
