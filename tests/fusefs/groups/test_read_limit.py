"""The end of the files `next-1000` and `next-10s` of a group, and when their positions are committed.

A run is one open file, from open(2) to close(2).
"""

from __future__ import annotations

import errno
import select

import pytest
import trio
import trio.testing

from tests.doubles.records import record
from tests.doubles.scripted_group import orders
from tests.fusefs.groups.conftest import AGAIN, Notification, Stream, World, all_tasks_blocked, read_behind
from topicfs.coordination.membership import GroupState, MemberPartitions
from topicfs.fusefs.forms import JSON, KV, VALUES, Form
from topicfs.fusefs.groups.read_limit import ReadLimit, parse_read_limit
from topicfs.storage.errors import CorruptionError, NotAssignedError

BEYOND_64_BITS = 99_999_999_999_999_999_999


def next_records(count: int) -> ReadLimit:
    return ReadLimit(drains=True, records=count)


async def read_all(stream: Stream, size: int = 100) -> list[bytes]:
    """Return the data of all reads up to the end."""
    seen = []
    while data := await stream.read(size):
        seen.append(data)
    return seen


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("log", ReadLimit()),
        ("drain", ReadLimit(drains=True)),
        ("next-1", next_records(1)),
        ("next-1000", next_records(1000)),
        (f"next-{BEYOND_64_BITS}", next_records(BEYOND_64_BITS)),
        ("next-10s", ReadLimit(seconds=10)),
        (f"next-{BEYOND_64_BITS}s", ReadLimit(seconds=BEYOND_64_BITS)),
        *(
            (f"next-{text}", None)
            for text in ("", "0", "0s", "007", "-1", "+1", "1.5", "s", "1S", "1m", "1 ", "\u0661")
        ),
        *((name, None) for name in ("next", "Next-1", "drain-1", "next-1-2", "0", "")),
    ],
)
def test_the_name_next_n_is_parsed(name: str, limit: ReadLimit | None):
    """The number in `next-N` is at least 1, has no leading zero, and has no upper limit."""
    assert limit == parse_read_limit(name)


async def test_the_end_commits(world: World):
    """The read that returns the end of the file commits, and the member leaves; earlier reads commit nothing."""
    world.add(0, b"a", b"b", b"c")
    stream = world.open(0, limit=next_records(2))

    assert [b"a\n", b"b\n"] == [await stream.read(2), await stream.read(2)]
    assert {} == stream.member.committed
    assert [b"", b""] == [await stream.read(), await stream.read()]
    assert ["commit orders-0 2", "leave"] == stream.member.said


async def test_closing_before_the_end_commits_nothing(world: World):
    """Closing a file before its end was read commits nothing."""
    world.add(0, b"a", b"b", b"c")
    stream = world.open(0, limit=next_records(3))
    await stream.read(2)
    await stream.read(2)
    await stream.close()

    assert ["leave"] == stream.member.said


@pytest.mark.parametrize("count", [3, 4, BEYOND_64_BITS])
async def test_with_too_few_records_the_file_ends_at_the_end_of_the_log(world: World, count: int):
    """If there are fewer records than the limit, the file ends where the log ended at open(2)."""
    world.add(0, b"a", b"b", b"c")
    stream = world.open(0, limit=next_records(count))
    world.add(0, b"later")

    assert [b"a\nb\nc\n"] == await read_all(stream)
    assert {orders(0): 3} == stream.member.committed


async def test_nothing_to_read_is_an_end_at_once(world: World):
    """If there are no records, the first read returns the end of the file, and nothing is committed."""
    stream = world.open(0, limit=next_records(5))

    assert [b"", b""] == [await stream.read(), await stream.read()]
    assert ["leave"] == stream.member.said


@pytest.mark.parametrize("form", [VALUES, KV, JSON], ids=lambda form: form.suffix)
@pytest.mark.parametrize("size", [1, 3, 7, 100, 100_000])
async def test_records_are_counted_and_not_lines_or_reads(world: World, form: Form, size: int):
    """The limit counts records, not lines or reads, even for values with newlines and for large records."""
    world = World(2)
    for number in (0, 1):
        world.add(number, b"two\nlines", b"", b"x" * 200, b"last")
        world.add(number, b"another batch")
    first = world.open(0, 1, limit=next_records(7), form=form)
    text = b"".join(await read_all(first, size))
    committed = first.member.committed
    rest = world.open(
        0, 1, p0=committed[orders(0)], p1=committed[orders(1)], limit=next_records(7), form=form
    )
    text += b"".join(await read_all(rest, size))
    whole = b"".join(await read_all(world.open(0, 1, limit=ReadLimit(drains=True), form=form), 100_000))

    assert 7 == sum(committed.values())
    assert {orders(0): 5, orders(1): 5} == {**committed, **rest.member.committed}
    assert sorted(whole.splitlines()) == sorted(text.splitlines())


async def test_offsets_without_records_are_not_counted(world: World):
    """Gaps of compaction, transaction markers and aborted records do not count towards the limit."""
    world.topic.all[0].skip_offsets(10)
    world.topic.all[0].add_compacted([record(12, value=b"a"), record(17, value=b"b")], last_offset=19)
    world.topic.all[0].add_marker()
    world.topic.all[0].skip_offsets(1000)
    world.add(0, b"c", b"d")
    world.topic.all[0].add_marker()

    first = world.open(0, limit=next_records(3))
    assert [b"a\n", b"b\n", b"c\n"] == await read_all(first, 2)
    assert {orders(0): 1022} == first.member.committed
    second = world.open(0, p0=1022, limit=next_records(1))
    assert [b"d\n"] == await read_all(second)
    assert {orders(0): 1024} == second.member.committed
    world.topic.all[0].add_marker()
    third = world.open(0, p0=1024, limit=next_records(1))
    assert [] == await read_all(third)
    assert {orders(0): 1025} == third.member.committed


async def test_a_damaged_batch_fails_the_run(world: World):
    """A damaged batch fails a read, as in `drain`; later reads return the next records; the read at the end commits."""
    world.add(0, b"a")
    world.add(0, b"b")
    world.topic.all[0].damage(0)
    stream = world.open(0, limit=next_records(1))
    assert isinstance(await stream.fails(), CorruptionError)

    assert [b"b\n"] == await read_all(stream)
    assert {orders(0): 2} == stream.member.committed


async def test_a_program_that_seeks_back_gets_every_line(world: World):
    """A program that seeks back after each line, as the `read` of a shell does, gets every line of its run."""
    world.add(0, b"a", b"b", b"c")
    stream, seen = world.open(0, limit=next_records(2)), []
    while data := await stream.read():
        seen.append(data[:2])
        stream.position += 2 - len(data)

    assert [b"a\n", b"b\n"] == seen
    assert {orders(0): 2} == stream.member.committed


async def test_a_partition_that_was_begun_stays_until_the_end(world: World):
    """A partition whose records were read is kept until the end, because another member would get them again."""
    world.add(0, b"a", b"b", b"c")
    stream = world.open(0, limit=next_records(2))
    await stream.read(2)
    stream.member.want_back(0)
    await all_tasks_blocked()
    assert b"b\n" == await stream.read(2)
    assert [] == stream.member.said
    assert b"" == await stream.read()

    assert ["commit orders-0 2", "leave"] == stream.member.said


async def test_a_partition_whose_records_were_not_read_is_given_up_at_once(world: World):
    """A partition from which the program has read no records is given up immediately, even after a poll(2)."""
    world = World(2)
    world.add(0, b"a")
    world.add(1, b"b")
    stream = world.open(0, limit=next_records(1))
    stream.poll(None)
    stream.member.want_back(0)
    await all_tasks_blocked()
    assert ["give up orders-0"] == stream.member.said
    stream.member.assign(1)

    assert [b"b\n"] == await read_all(stream)


async def test_a_run_that_read_records_ends_without_waiting_for_members(world: World):
    """A run that has read records ends without waiting for other members, which may wait for its end."""
    world = World(2)
    world.add(0, b"a")
    stream = world.open(0, 1, limit=next_records(5))
    await stream.read()
    stream.member.want_back(0, 1)
    world.groups.set_state(GroupState.PREPARING_REBALANCE)
    await all_tasks_blocked()
    assert ["give up orders-1"] == stream.member.said

    assert b"" == await stream.read()
    assert {orders(0): 1} == stream.member.committed


async def test_a_run_without_partitions_waits_for_them(world: World, nursery: trio.Nursery):
    """A run that has no partitions waits for them, because an end would mean that there are no records."""
    world.add(0, b"a")
    stream, seen = world.open(limit=next_records(5), nonblocking=False), []
    world.groups.set_state(GroupState.PREPARING_REBALANCE)
    await read_behind(nursery, stream, seen)
    assert [] == seen
    stream.member.assign(0)
    await all_tasks_blocked()

    assert [b"a\n"] == seen


async def test_a_partition_that_is_taken_away_fails_the_run(world: World):
    """If max.poll.interval.ms expires, the run fails and commits nothing in any partition."""
    world = World(2)
    world.add(0, b"a")
    world.add(1, b"b")
    stream = world.open(0, 1, limit=next_records(2))
    await stream.read()
    await stream.read()
    stream.member.assign(1)
    await all_tasks_blocked()

    assert [NotAssignedError] * 2 == [type(await stream.fails()) for _ in range(2)]
    assert [] == stream.member.said


async def test_a_commit_that_comes_too_late_is_no_end(world: World):
    """If the final commit comes too late, the run fails, because another member gets the records."""
    world.add(0, b"a")
    stream = world.open(0, limit=next_records(1))
    await stream.read()
    stream.member.failing = NotAssignedError("orders-0")

    assert isinstance(await stream.fails(), NotAssignedError)


async def test_a_commit_that_fails_is_tried_again(world: World):
    """If the final commit fails, reads fail until the commit succeeds, and only then return the end."""
    world.add(0, b"a")
    stream = world.open(0, limit=next_records(1))
    await stream.read()
    stream.member.failing = OSError(errno.ENOSPC, "full")
    stream.member.want_back(0)
    failures = [await stream.fails(), await stream.fails()]
    assert [] == stream.member.said
    stream.member.failing = None

    assert [errno.ENOSPC] * 2 == [getattr(one, "errno", None) for one in failures]
    assert b"" == await stream.read()
    assert ["commit orders-0 1", "leave"] == stream.member.said


async def test_manual_commits_are_the_programs(world: World):
    """With commit=manual, the member stays in the group after the end, until the program writes `commit`."""
    world.groups.present = world.groups.present._replace(commit="manual")
    world.add(0, b"a", b"b")
    stream = world.open(0, limit=next_records(1))
    assert [b"a\n"] == await read_all(stream)
    stream.member.want_back(0)
    await all_tasks_blocked()
    assert [] == stream.member.said
    await stream.write("commit\n")

    assert ["commit orders-0 1", "give up orders-0"] == stream.member.said


async def test_poll_tells_of_the_end(world: World):
    """At the end poll(2) finds the file readable."""
    world.add(0, b"a", b"b")
    stream = world.open(0, limit=next_records(1))
    await stream.read()

    assert stream.poll(None) & select.POLLIN
    assert b"" == await stream.read()
    assert stream.poll(None) & select.POLLIN


async def test_next_10s_ends_after_10_seconds(
    world: World, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
):
    """`next-10s` reads the records that exist or arrive within 10 seconds; then it ends and commits."""
    world.add(0, b"a")
    stream, seen = world.open(0, limit=ReadLimit(seconds=10), nonblocking=False), []
    await read_behind(nursery, stream, seen)
    mock_clock.jump(9.9)
    await read_behind(nursery, stream, seen)
    world.add(0, b"b")
    await all_tasks_blocked()
    await read_behind(nursery, stream, seen)
    assert [b"a\n", b"b\n"] == seen
    assert {} == stream.member.committed
    mock_clock.jump(0.2)
    await all_tasks_blocked()

    assert [b"a\n", b"b\n", b""] == seen
    assert {orders(0): 2} == stream.member.committed


async def test_after_the_time_a_record_that_was_begun_is_read_to_its_end(
    world: World, mock_clock: trio.testing.MockClock
):
    """When the time is over, a record that was read in part is read to its end, and no further record is read."""
    world.add(0, b"abc", b"def", b"ghi")
    stream = world.open(0, limit=ReadLimit(seconds=1))
    assert [b"abc\n", b"de"] == [await stream.read(4), await stream.read(2)]
    mock_clock.jump(2)
    await all_tasks_blocked()
    world.add(0, b"late")

    assert [b"f\n"] == await read_all(stream)
    assert {orders(0): 2} == stream.member.committed


async def test_poll_looks_ahead_and_the_time_is_over(world: World, mock_clock: trio.testing.MockClock):
    """When the time is over, a waiting poll(2) is woken; records that only poll(2) has looked at are not read."""
    stream, kernel = world.open(0, limit=ReadLimit(seconds=1)), Notification()
    assert 0 == stream.poll(kernel)
    mock_clock.jump(2)
    await all_tasks_blocked()
    assert 1 == kernel.told

    world.add(0, b"a")
    looking = world.open(0, limit=ReadLimit(seconds=1))
    assert looking.poll(None) & select.POLLIN
    mock_clock.jump(2)
    await all_tasks_blocked()
    assert [[], []] == [await read_all(stream), await read_all(looking)]


async def test_the_time_begins_when_the_group_admits_the_reader(
    world: World, mock_clock: trio.testing.MockClock
):
    """The time begins when the group admits the member; the rebalance before that does not count."""
    world.add(0, b"a")
    world.groups.admits = False
    stream = world.open(limit=ReadLimit(seconds=1))
    mock_clock.jump(5)
    await all_tasks_blocked()
    assert AGAIN == await stream.fails()
    stream.member.assign(0)
    assert b"a\n" == await stream.read()
    mock_clock.jump(2)
    await all_tasks_blocked()

    assert b"" == await stream.read()


async def test_a_time_limit_above_64_bits_never_ends(world: World, mock_clock: trio.testing.MockClock):
    """A time limit above 64 bits never ends: a read waits until close(2)."""
    stream = world.open(0, limit=ReadLimit(seconds=BEYOND_64_BITS))
    mock_clock.jump(10**9)
    await all_tasks_blocked()
    assert AGAIN == await stream.fails()
    await stream.close()
    await all_tasks_blocked()

    assert ["leave"] == stream.member.said
    assert MemberPartitions(generation=2, partitions=frozenset({orders(0)})) == stream.member.now
