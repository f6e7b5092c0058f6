"""A reader of a group whose partition lost records in an unclean election."""

from __future__ import annotations

from tests.doubles.scripted_group import orders
from tests.fusefs.groups.conftest import AGAIN, DRAIN, World
from topicfs.fusefs.groups.chunks import GROUP_FETCH_BYTES
from topicfs.fusefs.groups.read_limit import ReadLimit
from topicfs.storage.errors import NoPositionError


async def test_records_that_an_unclean_election_lost(world: World):
    """A reader that read lost records goes back to the first lost offset, commits this offset, and reports it.

    auto.offset.reset has no effect on this.
    """
    for value in (b"a", b"b", b"c"):
        world.add(0, value)
    world.groups.reset("latest")
    stream = world.open(0, p0=0)
    assert (b"a\nb\nc\n", AGAIN) == (await stream.read(), await stream.fails())
    assert {orders(0): 3} == stream.member.committed
    world.topic.all[0].lose(1)
    assert AGAIN == await stream.fails()
    assert {orders(0): 1} == stream.member.committed
    for value in (b"d", b"e", b"f"):
        world.add(0, value)

    assert b"d\ne\nf\n" == await stream.read()
    assert "the records from 1 on; reading continues at 1" in "\n".join(world.reports.lines())


async def test_lost_records_that_were_not_given(world: World):
    """If the lost records had not been read, the reader continues with the new records, without a report."""
    large = b"a" * GROUP_FETCH_BYTES
    for value in (large, b"b", b"c"):
        world.add(0, value)
    stream = world.open(0, limit=DRAIN)
    assert large + b"\n" == await stream.read(2 * GROUP_FETCH_BYTES)
    world.topic.all[0].lose(1)
    world.add(0, b"d")

    assert [b"d\n", b""] == [await stream.read(), await stream.read()]
    assert {orders(0): 2} == stream.member.committed
    assert [] == list(world.reports.lines())


async def test_a_reader_that_was_given_nothing_yet(world: World):
    """A reader that had read nothing reads the records before the truncation and the new ones, without a report."""
    for value in (b"a", b"b", b"c"):
        world.add(0, value)
    stream = world.open(0, p0=0)
    world.topic.all[0].lose(1)
    world.add(0, b"d")

    assert [b"a\nd\n", AGAIN] == [await stream.read(), await stream.fails()]
    assert {orders(0): 2} == stream.member.committed
    assert [] == list(world.reports.lines())


async def test_lost_records_without_a_reset(world: World):
    """With auto.offset.reset=none, a reader of lost records has no position until a position is set."""
    world.add(0, b"a")
    world.add(0, b"b")
    world.groups.reset("none")
    stream = world.open(0, p0=0)
    assert b"a\nb\n" == await stream.read()
    world.topic.all[0].lose(1)
    world.add(0, b"c")
    world.add(0, b"d")

    assert [NoPositionError] * 2 == [type(await stream.fails()) for _ in range(2)]


async def test_a_run_whose_records_were_lost(world: World):
    """`next-10` continues with the new records up to the new end, and commits that end."""
    for value in (b"a", b"b", b"c"):
        world.add(0, value)
    stream = world.open(0, limit=ReadLimit(drains=True, records=10))
    assert b"a\nb\nc\n" == await stream.read()
    world.topic.all[0].lose(1)
    world.add(0, b"d")

    assert [b"d\n", b""] == [await stream.read(), await stream.read()]
    assert {orders(0): 2} == stream.member.committed


async def test_lost_records_that_poll_sees_first(world: World):
    """If poll(2) notices the loss before a read does, only the position before the lost records is committed.

    The reader then gets the new records, and skips none.
    """
    for value in (b"a", b"b", b"c"):
        world.add(0, value)
    stream = world.open(0)
    assert b"a\nb\nc\n" == await stream.read()
    world.topic.all[0].lose(1)
    world.add(0, b"d")
    assert stream.poll(None)

    assert b"d\n" == await stream.read()
    assert {orders(0): 1} == stream.member.committed
