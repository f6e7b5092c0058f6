"""The open file `follow`, over partitions in memory."""

from __future__ import annotations

import errno
import select

import trio
import trio.testing

from tests.doubles.append_target import fails
from tests.doubles.memory_partition import MemoryPartition
from topicfs.fusefs.following.follow import Followed, FollowHandle
from topicfs.fusefs.following.tail import Tails
from topicfs.fusefs.following.waiting_reads import Program, WaitingReads
from topicfs.fusefs.following.wakeups import Wakeups
from topicfs.fusefs.forms import VALUES, Form
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.model import Isolation


class Stream:
    """An open file, and the position that the kernel keeps for it."""

    def __init__(self, handle: FollowHandle) -> None:
        self.handle = handle
        self.position = 0
        self.poll = handle.poll
        self.release = handle.release

    async def read(self, size: int) -> bytes:
        data = await self.handle.read(self.position, size)
        self.position += len(data)
        return data


class Topic:
    """Partitions in memory, and `follow` files that read them."""

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = {number: MemoryPartition("orders", number) for number in range(partitions)}
        self.waiting = WaitingReads(BlockingCalls())
        self.news = Wakeups(self.waiting.waker)
        for partition in self.partitions.values():
            partition.listen(self.news.signal)
        self.tails = Tails()

    def follow(self, form: Form = VALUES, *, nonblocking: bool = False) -> Stream:
        followed = Followed(lambda: self.partitions, self.news, self.tails, form, Isolation.READ_COMMITTED)
        program = Program(self.waiting, 7, "/orders/0/follow")
        return Stream(FollowHandle(followed, program, BlockingCalls(), nonblocking=nonblocking))


async def test_a_read_waits_for_the_next_record(nursery: trio.Nursery):
    """A read waits until a record is appended, and returns this record."""
    topic, seen = Topic(), []
    follow = topic.follow()

    async def read() -> None:
        seen.append(await follow.read(100))

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    assert [] == seen
    topic.partitions[0].add(b"a", b"b")
    await trio.testing.wait_all_tasks_blocked()

    assert [b"a\nb\n"] == seen


async def test_never_more_than_was_asked_for():
    """A read returns at most as many bytes as the program asks for; the next read returns the remaining bytes."""
    topic = Topic()
    follow = topic.follow()
    topic.partitions[0].add(b"abc")

    assert [b"a", b"b", b"c\n"] == [await follow.read(1) for _ in range(2)] + [await follow.read(100)]


async def test_seeking_back_within_the_last_read_works():
    """A program can seek back within the data of its last read, as `head -n 1` does; further back it gets ESPIPE."""
    topic = Topic()
    follow = topic.follow()
    topic.partitions[0].add(b"a")
    await follow.read(100)
    topic.partitions[0].add(b"b", b"c")
    assert b"b\nc\n" == await follow.read(100)

    follow.position -= 2
    topic.partitions[0].add(b"d")

    assert [b"c", b"\n", b"d\n"] == [await follow.read(1), await follow.read(100), await follow.read(100)]
    follow.position = 0
    await fails(follow.read(1), errno.ESPIPE)


async def test_several_partitions_and_one_that_comes_later():
    """`follow` of a topic reads all partitions; a partition that is added later is read from its first record."""
    topic = Topic(2)
    follow = topic.follow()
    topic.partitions[1].add(b"of 1")
    topic.partitions[2] = MemoryPartition("orders", 2)
    topic.partitions[2].add(b"of 2")

    assert [b"of 1\n", b"of 2\n"] == [await follow.read(100) for _ in range(2)]


async def test_markers_of_transactions_are_skipped():
    """Transaction markers are skipped: reads do not show them, and poll(2) does not count them as data."""
    topic = Topic()
    follow = topic.follow(nonblocking=True)
    topic.partitions[0].add_marker()
    assert 0 == follow.poll(None)
    topic.partitions[0].add_marker()
    topic.partitions[0].add(b"a")

    assert b"a\n" == await follow.read(100)


class Notification:
    """Counts the notifications that the kernel gets."""

    def __init__(self) -> None:
        self.told = 0

    def notify(self) -> None:
        self.told += 1


async def test_poll_tells_the_kernel_once_when_something_comes():
    """After poll(2) found nothing, the kernel is notified once, however many records arrive."""
    topic, kernel = Topic(), Notification()
    follow = topic.follow()
    assert 0 == follow.poll(kernel)
    topic.partitions[0].add(b"a")
    topic.partitions[0].add(b"b")

    assert 1 == kernel.told
    assert follow.poll(kernel) & select.POLLIN
    assert b"a\nb\n" == await follow.read(100)
    assert 0 == follow.poll(kernel)


async def test_a_newer_poll_replaces_the_older_one():
    """The kernel is notified only for the newest poll(2), and not for a closed file."""
    topic, old, new = Topic(), Notification(), Notification()
    follow = topic.follow()
    follow.poll(old)
    follow.poll(new)
    topic.partitions[0].add(b"a")
    assert (0, 1) == (old.told, new.told)

    await follow.read(100)
    follow.poll(new)
    await follow.release()
    topic.partitions[0].add(b"b")

    assert 1 == new.told


async def test_records_beyond_the_visible_end_are_not_shown():
    """Records above the high watermark or in an open transaction are shown once, when they become visible."""
    topic = Topic()
    partition = topic.partitions[0]
    follow = topic.follow(nonblocking=True)
    partition.add(b"a", b"b", b"c")
    partition.high_watermark = 1
    assert b"a\n" == await follow.read(100)
    await fails(follow.read(100), errno.EAGAIN)
    partition.high_watermark = 2
    assert b"b\n" == await follow.read(100)
    partition.high_watermark = None
    assert b"c\n" == await follow.read(100)
