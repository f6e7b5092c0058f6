"""Followers share text that is rendered once and stored up to a limit. Each follower gets each line once."""

from __future__ import annotations

import errno
import random
import select

import pytest
import trio
import trio.testing

from tests.doubles.append_target import fails
from tests.fusefs.following.test_follow import Stream, Topic
from topicfs.fusefs.errors import FileError
from topicfs.fusefs.following import follow as follows
from topicfs.fusefs.following.tail import CHUNK_OVERHEAD_BYTES, Tails
from topicfs.fusefs.forms import JSON
from topicfs.storage.errors import CorruptionError

LINE = b"x" * 99


async def rest(follow: Stream, size: int = 1000) -> bytes:
    """Return all data that a follower can read now."""
    found = []
    try:
        while True:
            found.append(await follow.read(size))
    except FileError as error:
        assert errno.EAGAIN == error.number
    return b"".join(found)


async def test_an_appended_batch_is_rendered_once_for_all_followers():
    """An appended batch is fetched and rendered once, and all followers of a form share the text."""
    topic = Topic()
    partition = topic.partitions[0]
    followers = [topic.follow() for _ in range(5)]
    partition.add(b"a", b"b")

    assert [b"a\nb\n"] * 5 == [await follow.read(100) for follow in followers]
    assert 1 == partition.reads


async def test_each_form_is_rendered_by_itself():
    """Each form is fetched and rendered separately."""
    topic = Topic()
    values, more_values, records = topic.follow(), topic.follow(), topic.follow(JSON)
    topic.partitions[0].add(b"a")

    assert b"a\n" == await values.read(100) == await more_values.read(100)
    assert b'"offset":0' in await records.read(1000)
    assert 2 == topic.partitions[0].reads


async def test_a_slow_follower_renders_text_that_is_no_longer_stored():
    """A slow follower renders the dropped text itself, and then shares new text with the other followers."""
    topic = Topic()
    topic.tails = Tails(kept_bytes=3 * (CHUNK_OVERHEAD_BYTES + 100))
    partition = topic.partitions[0]
    fast, other, slow = (topic.follow(nonblocking=True) for _ in range(3))
    lines = [b"%099d" % number for number in range(10)]
    for line in lines:
        partition.add(line)
        assert line + b"\n" == await rest(fast) == await rest(other)
    reads = partition.reads

    assert b"".join(line + b"\n" for line in lines) == await rest(slow)
    assert partition.reads == reads + 1
    partition.add(b"end")
    assert [b"end\n"] * 3 == [await rest(slow), await rest(fast), await rest(other)]
    assert partition.reads == reads + 2


async def test_the_stored_text_of_all_partitions_is_limited():
    """The limit applies to all partitions and forms together; the oldest text is dropped first."""
    topic = Topic(3)
    topic.tails = Tails(kept_bytes=5 * (CHUNK_OVERHEAD_BYTES + 100))
    fast, _slow = topic.follow(nonblocking=True), topic.follow()
    for number in range(30):
        topic.partitions[number % 3].add(LINE)
        await rest(fast)

    assert 5 == topic.tails.kept_chunks


async def test_a_single_follower_keeps_nothing():
    """A single follower's text is not stored, because no other follower needs it."""
    topic = Topic()
    follow = topic.follow(nonblocking=True)
    topic.partitions[0].add(b"a")
    await rest(follow)

    assert 0 == topic.tails.kept_chunks


async def test_the_stored_text_is_dropped_with_the_last_follower():
    """When the last follower closes its file, the stored text is dropped; a later follower begins at the log's end."""
    topic = Topic()
    followers = [topic.follow(nonblocking=True) for _ in range(2)]
    topic.partitions[0].add(b"a")
    await rest(followers[0])
    assert 1 == topic.tails.kept_chunks

    for follow in followers:
        await follow.release()
    assert 0 == topic.tails.kept_chunks
    late = topic.follow(nonblocking=True)
    topic.partitions[0].add(b"b")
    assert b"b\n" == await rest(late)


async def test_a_new_follower_begins_at_the_end_of_the_log():
    """A new follower begins at the end of the log; the other followers continue at their positions."""
    topic = Topic()
    early, behind = topic.follow(nonblocking=True), topic.follow(nonblocking=True)
    topic.partitions[0].add(b"a")
    assert b"a\n" == await rest(early)
    topic.partitions[0].add(b"b")
    newcomer = topic.follow(nonblocking=True)
    topic.partitions[0].add(b"c")

    assert b"c\n" == await rest(newcomer)
    assert b"b\nc\n" == await rest(early)
    assert b"a\nb\nc\n" == await rest(behind)


async def test_a_batch_of_several_windows_is_shared_window_by_window():
    """A batch of several windows is shared window by window, so a window may begin in the middle of the batch."""
    topic = Topic()
    topic.tails = Tails(kept_bytes=2**20)
    partition = topic.partitions[0]
    followers = [topic.follow(JSON, nonblocking=True) for _ in range(3)]
    partition.add(*(b"%099d" % number for number in range(20_000)))

    expected = await rest(followers[0], 2**17)
    assert 20_000 == expected.count(b"\n")
    assert [expected] * 2 == [await rest(follow, 2**17) for follow in followers[1:]]


async def test_damage_is_reported_to_each_follower_once():
    """Each follower gets the error of a damaged batch once, and then the records after the batch."""
    topic = Topic()
    partition = topic.partitions[0]
    followers = [topic.follow(nonblocking=True) for _ in range(3)]
    for value in (b"a", b"b", b"c"):
        partition.add(value)
    partition.damage(1)

    for follow in followers:
        assert b"a\n" == await follow.read(100)
        with pytest.raises(CorruptionError):
            await follow.read(100)
        assert b"c\n" == await rest(follow)


async def test_stored_text_of_deleted_records_can_be_read():
    """A follower gets stored text even if its records were deleted; a read that needs deleted records gives ESTALE."""
    topic = Topic()
    partition = topic.partitions[0]
    fast, slow = topic.follow(nonblocking=True), topic.follow(nonblocking=True)
    partition.add(b"a")
    await rest(fast)
    partition.log_start_offset = 1
    assert b"a\n" == await rest(slow)
    partition.add(b"b")
    partition.log_start_offset = 2

    for follow in (fast, slow):
        await fails(follow.read(10), errno.ESTALE)
    newcomer = topic.follow(nonblocking=True)
    partition.add(b"c")
    assert b"c\n" == await rest(newcomer)


@pytest.mark.parametrize("overtaken", [False, True])
async def test_a_follower_that_got_lost_records_gets_estale(overtaken: bool):
    """After an unclean election, a follower that has read lost records gets ESTALE; others get the new records."""
    topic = Topic()
    partition = topic.partitions[0]
    fast, slow, behind = (topic.follow(nonblocking=True) for _ in range(3))
    partition.add(b"a")
    assert b"a\n" == await rest(slow)
    partition.add(b"b")
    assert b"a\nb\n" == await rest(fast)
    partition.lose(1)
    if overtaken:
        partition.add(b"c")
        partition.add(b"d")

    assert select.POLLIN & fast.poll(None)
    for _again in range(2):
        await fails(fast.read(10), errno.ESTALE)
    new = b"c\nd\n" if overtaken else b""
    assert [new, b"a\n" + new] == [await rest(slow), await rest(behind)]


async def test_a_follower_sees_each_of_several_cuts():
    """A truncation of unread records does not hide a later truncation of records that a follower has read."""
    topic = Topic()
    partition = topic.partitions[0]
    partition.add(b"a")
    partition.add(b"b")
    follow = topic.follow(nonblocking=True)
    partition.add(b"c")
    partition.lose(2)
    assert b"" == await rest(follow)
    partition.add(b"d")
    assert b"d\n" == await rest(follow)
    partition.lose(1)

    await fails(follow.read(10), errno.ESTALE)


async def test_a_partition_opened_again_is_followed_on():
    """After a partition was reopened, followers continue at their offsets in the new files."""
    topic = Topic()
    followers = [topic.follow(nonblocking=True) for _ in range(2)]
    topic.partitions[0].add(b"a")
    assert b"a\n" == await rest(followers[0])
    old = topic.partitions[0]
    topic.partitions[0] = again = type(old)("orders", 0)
    again.add(b"a")
    again.add(b"b")

    assert [b"b\n", b"a\nb\n"] == [await rest(follow) for follow in followers]


async def test_a_record_between_a_read_and_its_wait_is_not_missed(monkeypatch, nursery: trio.Nursery):
    """A record that is appended after a read found nothing, but before the read waits, is not missed."""
    monkeypatch.setattr(follows, "INLINE_PARTITIONS", 0)
    topic, read = Topic(), []
    follow = topic.follow()
    look, looks = follow.handle._fill, []

    def look_and_append() -> bool:
        found = look()
        looks.append(found)
        if len(looks) == 1:
            topic.partitions[0].add(b"a")
        return found

    monkeypatch.setattr(follow.handle, "_fill", look_and_append)

    async def read_it() -> None:
        read.append(await follow.read(100))

    nursery.start_soon(read_it)
    while not read:
        await trio.sleep(0.01)

    assert [b"a\n"] == read
    assert [False, True] == looks


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_the_order_each_follower_gets_every_line_once(seed: int):
    """Slow and fast followers get each line once, across batches, markers, gaps and rolls, even with a small limit."""
    chance, topic = random.Random(seed), Topic()
    topic.tails = Tails(kept_bytes=chance.choice((1, 4000, 10**6)))
    partition, written = topic.partitions[0], b""
    followers: list[tuple[Stream, int, list[bytes]]] = []
    for number in range(300):
        match chance.randrange(8):
            case 0 | 1 | 2:
                values = [b"%d-%d" % (number, each) for each in range(chance.randrange(1, 5))]
                partition.add(*values)
                written += b"".join(value + b"\n" for value in values)
            case 3:
                chance.choice((partition.add_marker, partition.roll, lambda: partition.skip_offsets(2)))()
            case 4 if len(followers) < 6:
                followers.append((topic.follow(nonblocking=True), len(written), []))
            case 5 if len(followers) > 4:
                follow, start, found = followers.pop(chance.randrange(len(followers)))
                assert written[start:].startswith(b"".join(found))
                await follow.release()
            case _ if followers:
                follow, _, found = chance.choice(followers)
                try:
                    found.append(bytes(await follow.read(chance.choice((3, 20, 1000)))))
                except FileError as error:
                    assert errno.EAGAIN == error.number
    for follow, start, found in followers:
        assert written[start:] == b"".join(found) + await rest(follow)
