"""Polls of a group's open `log` and `drain`: the file is readable if the next read would not wait."""

from __future__ import annotations

import errno
import select

from tests.fusefs.groups.conftest import DRAIN, Notification, World, all_tasks_blocked


async def test_poll_asks_for_nothing(world: World):
    """poll(2) commits nothing, and the next read returns the records that poll(2) has found."""
    world.add(0, b"a")
    stream, kernel = world.open(0), Notification()
    await all_tasks_blocked()
    assert stream.poll(kernel) & select.POLLIN
    await stream.read()
    assert 0 == stream.poll(kernel)
    assert {} == stream.member.committed

    world.add(0, b"b")
    assert 1 == kernel.told
    assert stream.poll(kernel) & select.POLLIN
    assert b"b\n" == await stream.read()


async def test_poll_tells_of_partitions_too(world: World):
    """poll(2) is notified of a new partition that has records, and of the end of `drain`."""
    world.add(0, b"a")
    stream, kernel = world.open(), Notification()
    assert 0 == stream.poll(kernel)
    stream.member.assign(0)
    await all_tasks_blocked()
    assert 1 == kernel.told

    drained = world.open(0, limit=DRAIN)
    await drained.read()
    assert drained.poll(kernel) & select.POLLIN


async def test_a_polled_partition_can_be_given_back(world: World):
    """A partition that only poll(2) has looked at is given up immediately."""
    world.add(0, b"a")
    stream = world.open(0)
    stream.poll(None)
    stream.member.want_back(0)
    await all_tasks_blocked()

    assert ["give up orders-0"] == stream.member.said


async def test_poll_of_a_deleted_topic_is_readable(world: World):
    """poll(2) after the topic was deleted finds the file readable, because the next read fails without waiting."""
    stream = world.open(0)
    await all_tasks_blocked()
    del world.engine.all["orders"]

    assert stream.poll(None) & select.POLLIN
    assert errno.ESTALE == await stream.fails()
