"""The open files `log` and `drain` of a group: which records they return, commit and give up."""

from __future__ import annotations

import errno

import pytest
import trio

from tests.doubles.memory_engine import MemoryTopic
from tests.doubles.scripted_group import orders
from tests.fusefs.groups.conftest import AGAIN, DRAIN, World, all_tasks_blocked, read_behind
from topicfs.coordination.membership import GroupState
from topicfs.fusefs.forms import BATCH, JSON, KV, VALUES, Form
from topicfs.fusefs.groups.read_limit import ReadLimit
from topicfs.storage.errors import CorruptionError, GroupError, NoPositionError, NotAssignedError


async def test_it_begins_at_the_groups_position(world: World):
    """A reader begins at the group's committed position."""
    world.add(0, b"a", b"b", b"c")

    assert b"b\nc\n" == await world.open(0, p0=1).read()


async def test_a_read_commits_the_records_of_earlier_reads(world: World):
    """A read commits the records that earlier reads returned, so that unprocessed records are not lost."""
    world.add(0, b"a", b"b")
    stream = world.open(0)

    assert b"a\nb\n" == await stream.read()
    assert {} == stream.member.committed
    assert AGAIN == await stream.fails()
    assert {orders(0): 2} == stream.member.committed


async def test_only_records_that_were_read_whole_are_committed(world: World):
    """If a program reads byte by byte, a record is committed when the first byte after it is read."""
    world.add(0, b"ab", b"c")
    stream, seen = world.open(0), []
    for _ in range(5):
        data = await stream.read(1)
        seen.append((data, stream.member.committed.get(orders(0))))

    assert [(b"a", None), (b"b", None), (b"\n", None), (b"c", 1), (b"\n", 1)] == seen


async def test_a_read_returns_whole_records_if_one_fits(world: World):
    """A read returns whole records if at least one fits; a larger record is returned in pieces."""
    world.add(0, b"abc", b"def", b"ghi")
    stream = world.open(0)

    assert [b"abc\n", b"def\n", b"gh", b"i\n"] == [await stream.read(size) for size in (7, 5, 2, 100)]


async def test_records_after_the_position_are_not_committed(world: World):
    """If a program seeks back, as `head -n 1` and bash's `read` do, records after its position are not committed."""
    world.add(0, b"a", b"b", b"c")
    stream = world.open(0)
    assert b"a\nb\nc\n" == await stream.read()

    stream.position = 2

    assert b"b\nc\n" == await stream.read()
    assert {orders(0): 1} == stream.member.committed


async def test_seeking_back_before_a_committed_record_fails(world: World):
    """Seeking back to before a committed record fails with ESPIPE."""
    world.add(0, b"a", b"b")
    stream = world.open(0)
    await stream.read(2)
    await stream.read(2)

    stream.position = 0

    assert errno.ESPIPE == await stream.fails()


@pytest.mark.parametrize("form", [VALUES, KV, JSON, BATCH])
async def test_each_form_commits_offsets(form: Form, world: World):
    """Each form commits the same offsets."""
    world.add(0, b"a", b"b")
    world.add(0, b"c")
    stream = world.open(0, form=form)

    assert await stream.read(10_000)
    assert AGAIN == await stream.fails()
    assert {orders(0): 3} == stream.member.committed


async def test_partitions_in_turns(world: World):
    """Partitions are read in turn, so that a busy partition does not block the other partitions."""
    world = World(3)
    for number in range(3):
        world.add(number, b"%d" % number)
    stream = world.open(0, 1, 2)
    first = [await stream.read() for _ in range(3)]
    world.add(0, b"0")
    world.add(2, b"2")

    assert [b"0\n", b"1\n", b"2\n"] == sorted(first)
    assert [b"0\n", b"2\n"] == sorted([await stream.read(), await stream.read()])


async def test_it_waits_for_records_and_for_partitions(world: World, nursery: trio.Nursery):
    """A read waits for an assignment of partitions, and then for records."""
    stream, seen = world.open(nonblocking=False), []
    await read_behind(nursery, stream, seen)
    assert [] == seen
    world.add(0, b"a")
    await all_tasks_blocked()
    assert [] == seen
    stream.member.assign(0)
    await all_tasks_blocked()
    assert [b"a\n"] == seen

    await read_behind(nursery, stream, seen)
    world.add(0, b"b")
    await all_tasks_blocked()

    assert [b"a\n", b"b\n"] == seen


async def test_a_partition_without_uncommitted_records_is_given_up_at_once(world: World):
    """A partition that has no uncommitted records is given up immediately, before the next read."""
    world = World(2)
    world.add(0, b"a")
    stream = world.open(0, 1)
    await stream.read()

    stream.member.want_back(1)
    await all_tasks_blocked()

    assert ["give up orders-1"] == stream.member.said


async def test_uncommitted_records_are_committed_before_a_partition_is_given_up(world: World):
    """A partition that has uncommitted records is given up at the next read, after the records were committed."""
    world.add(0, b"a", b"b")
    stream = world.open(0)
    await stream.read(2)

    stream.member.want_back(0)
    await all_tasks_blocked()
    assert [] == stream.member.said
    assert AGAIN == await stream.fails()

    assert ["commit orders-0 1", "give up orders-0"] == stream.member.said


async def test_a_record_that_was_begun_is_given_to_its_end(world: World):
    """A record that was read in part is read to its end before its partition is given up; no other record is read."""
    world.add(0, b"abcdef", b"g")
    stream = world.open(0)
    assert b"ab" == await stream.read(2)

    stream.member.want_back(0)
    await all_tasks_blocked()

    assert [b"cd", b"ef\n"] == [await stream.read(2), await stream.read(100)]
    assert [] == stream.member.said
    assert AGAIN == await stream.fails()
    assert ["commit orders-0 1", "give up orders-0"] == stream.member.said


async def test_a_waiting_reader_gives_back_at_once(world: World, nursery: trio.Nursery):
    """A reader that waits gives up its partition immediately: its new read shows that earlier records are done."""
    world.add(0, b"a")
    stream, seen = world.open(0, nonblocking=False), []
    await stream.read()
    await read_behind(nursery, stream, seen)
    stream.member.want_back(0)
    await all_tasks_blocked()

    assert ["commit orders-0 1", "give up orders-0"] == stream.member.said
    stream.member.assign(0, p0=1)
    world.add(0, b"b")
    await all_tasks_blocked()
    assert [b"b\n"] == seen


async def test_a_line_that_a_program_left_to_the_next_goes_to_the_next_owner(world: World):
    """Records that the program seeked back over are not committed, so the partition's next member reads them."""
    world.add(0, b"a", b"b", b"c")
    stream = world.open(0)
    await stream.read()
    stream.member.want_back(0)
    await all_tasks_blocked()

    stream.position = 2

    assert AGAIN == await stream.fails()
    assert ["commit orders-0 1", "give up orders-0"] == stream.member.said


async def test_a_partition_that_comes_again_begins_at_its_new_position(world: World):
    """If a partition is assigned again, it is read from its newly committed position."""
    world.add(0, b"a", b"b", b"c", b"d")
    stream = world.open(0)
    await stream.read(2)
    stream.member.want_back(0)
    await stream.fails()

    stream.member.assign(0, p0=3)

    assert b"d\n" == await stream.read()


async def test_a_partition_that_was_taken_away(world: World):
    """After max.poll.interval.ms, no more records of the lost partition are read or committed."""
    world.add(0, b"abc", b"d")
    stream = world.open(0)
    await stream.read(2)

    stream.member.assign()
    await all_tasks_blocked()

    assert AGAIN == await stream.fails()
    assert [] == stream.member.said


async def test_the_last_close_leaves(world: World):
    """After the last close(2) the member leaves the group without a commit."""
    world.add(0, b"a")
    stream = world.open(0)
    await stream.read()
    await stream.close()
    await stream.close()

    assert ["leave"] == stream.member.said


async def test_a_failed_commit_is_reported_by_the_next_read(world: World):
    """After a failed commit, reads fail until a commit succeeds, so that no record is read twice unnoticed."""
    world.add(0, b"a", b"b", b"c")
    stream = world.open(0)
    await stream.read(2)
    stream.member.failing = OSError(errno.ENOSPC, "full")
    assert b"b\n" == await stream.read(2)
    await all_tasks_blocked()

    failures = [await stream.fails(2), await stream.fails(2)]
    stream.member.failing = None

    assert [errno.ENOSPC] * 2 == [getattr(one, "errno", None) for one in failures]
    assert b"c\n" == await stream.read(2)
    assert {orders(0): 2} == stream.member.committed


async def test_a_commit_that_came_too_late_is_no_error(world: World):
    """A commit after the partition was reassigned is not an error, because the new member reads the records again."""
    world.add(0, b"a", b"b")
    stream = world.open(0)
    await stream.read(2)
    stream.member.failing = NotAssignedError("orders-0")
    await stream.read(2)
    await all_tasks_blocked()

    assert AGAIN == await stream.fails()


async def test_reads_of_a_deleted_group_fail(world: World):
    """After the group was deleted, each read fails, and the reason says so."""
    stream = world.open(0)
    stream.member.lose(GroupError("deleted"))

    assert ["deleted", "deleted"] == [str(await stream.fails()) for _ in range(2)]


async def test_drain_ends_where_the_partitions_ended(world: World):
    """`drain` ends where the partitions ended at open(2); then a read returns no data, and all is committed."""
    world = World(2)
    world.add(0, b"a")
    world.add(1, b"b")
    stream = world.open(limit=DRAIN)
    world.add(0, b"later")
    stream.member.assign(0, 1)

    assert [b"a\n", b"b\n", b"", b""] == [
        *sorted([await stream.read(), await stream.read()]),
        await stream.read(),
        await stream.read(),
    ]
    assert {orders(0): 1, orders(1): 1} == stream.member.committed


async def test_drain_waits_until_its_positions_are_committed(world: World, nursery: trio.Nursery):
    """The end of `drain` waits for the commit."""
    world.add(0, b"a")
    stream, seen = world.open(0, limit=DRAIN, nonblocking=False), []
    await stream.read()
    stream.member.answers = False
    await read_behind(nursery, stream, seen)
    assert [] == seen
    stream.member.unanswered[0].set_result(None)
    await all_tasks_blocked()

    assert [b""] == seen


async def test_drain_that_cannot_commit_says_so_in_place_of_its_end(world: World):
    """If the commit fails, the read at the end of `drain` fails instead of returning the end."""
    world.add(0, b"a")
    stream = world.open(0, limit=DRAIN)
    await stream.read()
    stream.member.failing = OSError(errno.ENOSPC, "full")

    assert errno.ENOSPC == getattr(await stream.fails(), "errno", None)


async def test_drain_waits_for_a_rebalance(nursery: trio.Nursery):
    """`drain` waits while a rebalance may still assign partitions to it."""
    world = World(2)
    stream, seen = world.open(0, limit=DRAIN, nonblocking=False), []
    await read_behind(nursery, stream, seen)
    assert [] == seen
    world.groups.elsewhere = (orders(1),)
    world.groups.set_state(GroupState.PREPARING_REBALANCE)
    await all_tasks_blocked()
    assert [] == seen
    world.groups.set_state(GroupState.STABLE)
    await all_tasks_blocked()

    assert [b""] == seen


async def test_drain_waits_for_a_position_that_a_transaction_may_move(world: World, nursery: trio.Nursery):
    """`drain` waits for a partition whose position is undecided, because a transaction may still change it."""
    world.add(0, b"a")
    stream, seen = world.open(limit=DRAIN, nonblocking=False), []
    stream.member.undecided = (orders(0),)
    await read_behind(nursery, stream, seen)
    assert [] == seen
    stream.member.undecided = ()
    stream.member.assign(0)
    await all_tasks_blocked()

    assert [b"a\n"] == seen


async def test_drain_passes_markers(world: World):
    """`drain` commits the offset after a transaction marker, so that the lag is 0."""
    world.add(0, b"a")
    world.topic.all[0].add_marker()
    stream = world.open(0, limit=DRAIN)

    assert [b"a\n", b""] == [await stream.read(), await stream.read()]
    assert {orders(0): 2} == stream.member.committed


@pytest.mark.parametrize("drains", [True, False])
async def test_a_partition_of_aborted_records_is_committed_to_its_end(world: World, drains: bool):
    """A group's position moves to the end of a log of aborted records; for an empty log no position is stored."""
    world = World(2)
    world.topic.all[0].add_marker()
    stream = world.open(0, 1, limit=ReadLimit(drains=drains))

    assert (b"" if drains else AGAIN) == (await stream.read() if drains else await stream.fails())
    assert {orders(0): 1} == stream.member.committed


async def test_auto_offset_reset(world: World):
    """If there is no position, auto.offset.reset decides: earliest, latest, by_duration, or none, which is an error."""
    world.topic.all[0].add(b"a", time=1_000)
    world.topic.all[0].add(b"b", time=9_000)

    assert b"a\n" == (await world.open(0).read())[:2]
    world.groups.reset("latest")
    stream = world.open(0)
    assert AGAIN == await stream.fails()
    assert {orders(0): 2} == stream.member.committed
    world.groups.reset("by_duration", 5_000)
    assert b"b\n" == await world.open(0).read()
    world.groups.reset("none")
    assert isinstance(await world.open(0).fails(), NoPositionError)


@pytest.mark.parametrize("position", [0, 9])
async def test_a_position_out_of_range(world: World, position: int):
    """A position outside the log is reset as auto.offset.reset says, and this is reported."""
    world.add(0, b"a", b"b", b"c")
    world.topic.all[0].log_start_offset = 1

    assert b"b\nc\n" == await world.open(0, p0=position).read()
    (line,) = world.reports.lines()
    assert f"orders-0: position {position} is outside the log; reading continues at 1" in line


async def test_records_that_are_deleted_before_they_are_read(world: World):
    """If unread records are deleted, the reader continues as auto.offset.reset says, and this is reported."""
    world.add(0, b"a", b"b")
    stream = world.open(0)
    await stream.read()
    world.add(0, b"c")
    world.add(0, b"d")
    world.topic.all[0].log_start_offset = 3

    assert b"d\n" == await stream.read()
    assert "reading continues at 3" in world.reports.lines()[0]


async def test_a_damaged_batch_is_done_only_when_more_is_asked_for(world: World):
    """A damaged batch fails one read. Only the next read commits the position after the damaged batch."""
    world.add(0, b"a")
    world.add(0, b"b")
    world.topic.all[0].damage(0)
    stream = world.open(0)
    assert isinstance(await stream.fails(), CorruptionError)
    assert {} == stream.member.committed

    assert b"b\n" == await stream.read()
    assert {orders(0): 1} == stream.member.committed


async def test_a_deleted_topic_ends_it(world: World):
    """After its topic was deleted, a read fails with ESTALE."""
    stream = world.open(0)
    del world.engine.all["orders"]
    stream.member.assign()

    assert errno.ESTALE == await stream.fails()


async def test_a_partition_that_was_opened_again(world: World):
    """After a partition was reopened, reading continues at the same offset."""
    world.add(0, b"a")
    stream = world.open(0)
    await stream.read()
    again = MemoryTopic("orders", 1)
    again.all[0].add(b"a", b"b")
    world.engine.all["orders"] = again

    assert b"b\n" == await stream.read()


async def test_a_read_that_waits_hears_of_a_partition_that_was_opened_again(
    world: World, nursery: trio.Nursery
):
    """A waiting read is also woken by records that arrive after its partition was reopened."""
    stream, seen = world.open(0, nonblocking=False), []
    await read_behind(nursery, stream, seen)
    again = MemoryTopic("orders", 1)
    world.engine.all["orders"] = again
    world.topic.all[0].listeners[0]()  # The signal by which the engine reports that the log failed.
    await all_tasks_blocked()
    again.all[0].add(b"a")
    await all_tasks_blocked()

    assert [b"a\n"] == seen
    nursery.cancel_scope.cancel()
