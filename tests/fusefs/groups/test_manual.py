"""Groups with commit=manual: the program commits by writing to the file."""

from __future__ import annotations

from tests.doubles.memory_engine import MemoryTopic
from tests.doubles.scripted_group import orders
from tests.fusefs.groups.conftest import AGAIN, Stream, World, all_tasks_blocked, errno_of
from topicfs.storage.errors import NotAssignedError


async def manual(world: World, *numbers: int) -> Stream:
    world.groups.present = world.groups.present._replace(commit="manual")
    return world.open(*numbers)


async def test_manual_commits_the_records_read_when_commit_is_written(world: World):
    """`commit` commits the position that the program has reached by reads and seeks when it writes the command."""
    world.add(0, b"a", b"b", b"c")
    stream = await manual(world, 0)
    await stream.read()
    stream.position = 2

    await stream.write("commit\n")
    assert {orders(0): 1} == stream.member.committed
    assert b"b\nc\n" == await stream.read()
    assert AGAIN == await stream.fails()
    assert {orders(0): 1} == stream.member.committed
    await stream.write("commit\n")

    assert {orders(0): 3} == stream.member.committed


async def test_manual_commits_an_offset(world: World):
    """`commit OFFSET` commits in the partition that was read last; `commit PARTITION OFFSET` names a partition."""
    world = World(2)
    world.add(0, b"a", b"b")
    stream = await manual(world, 0, 1)
    await stream.read()

    await stream.write("commit 1\n")
    await stream.write("commit orders-1 0\n")

    assert {orders(0): 1, orders(1): 0} == stream.member.committed
    assert isinstance(await errno_of(stream.write("commit orders-7 1\n")), NotAssignedError)


async def test_manual_commits_the_offset_at_which_it_began(world: World):
    """Committing the position at which the member began also writes the position to the log."""
    world.add(0, b"a")
    stream = await manual(world, 0)
    await stream.read()
    await stream.write("commit 0\n")

    assert {orders(0): 0} == stream.member.committed


async def test_manual_commits_nothing_of_a_deleted_topic(world: World):
    """After a topic was recreated, positions of the deleted topic are not committed for the new topic.

    The new topic is read from its start.
    """
    world.add(0, b"a", b"b")
    stream = await manual(world, 0)
    assert b"a\nb\n" == await stream.read()
    world.topic = world.engine.all["orders"] = MemoryTopic("orders", 1)
    world.topic.topic_id = "another"
    world.add(0, b"c")
    stream.member.now = stream.member.now._replace(topic_ids={"orders": "another"})

    assert isinstance(await errno_of(stream.write("commit orders-0 2\n")), NotAssignedError)
    assert {} == stream.member.committed
    assert b"c\n" == await stream.read()
    await stream.write("commit 1\n")
    assert {orders(0): 1} == stream.member.committed


async def test_unknown_words_are_refused(world: World):
    """If a program writes an unknown word, the write fails, and the reason lists the valid words."""
    stream = await manual(world, 0)

    assert "`commit OFFSET`" in str(await errno_of(stream.write("done\n")))
    world.add(0, b"a")
    assert b"a\n" == await stream.read()


async def test_manual_gives_back_what_it_has_not_committed(world: World):
    """With commit=manual, a reader that must give up a partition does not commit the records that it read."""
    world.add(0, b"a", b"b")
    stream = await manual(world, 0)
    await stream.read()
    stream.member.want_back(0)
    await all_tasks_blocked()
    assert [] == stream.member.said
    assert AGAIN == await stream.fails()

    assert ["give up orders-0"] == stream.member.said
