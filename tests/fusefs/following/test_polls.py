"""poll(2) and epoll(7) of open files whose reads wait, tested with `follow` files of a topic in memory."""

from __future__ import annotations

import select
import threading

import trio.testing

from tests.fusefs.following.test_follow import Notification, Topic
from topicfs.fusefs.following.wakeups import WAKEUPS_PER_TURN


def append_from_another_thread(topic: Topic) -> None:
    """Append a record in another thread; the event loop delivers the wakeup only after the caller has waited again."""
    thread = threading.Thread(target=topic.partitions[0].add, args=(b"a",))
    thread.start()
    thread.join()


async def test_a_poll_that_sees_a_record_first_does_not_stop_a_wakeup():
    """A waiting epoll(7) is woken even if another poll(2) sees the record before the wakeup is delivered."""
    topic, waiting, sees = Topic(), Notification(), Notification()
    follow = topic.follow()
    assert 0 == follow.poll(waiting)
    append_from_another_thread(topic)
    assert follow.poll(sees) & select.POLLIN
    assert 0 == waiting.told + sees.told

    await trio.testing.wait_all_tasks_blocked()

    assert 1 == waiting.told + sees.told


async def test_a_poll_without_notification_cancels_no_other_notification():
    """A poll that requests no notification does not cancel the notification that an earlier poll requested."""
    topic, waiting = Topic(), Notification()
    follow = topic.follow()
    assert 0 == follow.poll(waiting)
    assert 0 == follow.poll(None)

    topic.partitions[0].add(b"a")

    assert 1 == waiting.told


async def test_a_poll_in_the_queue_of_the_woken_keeps_its_turn():
    """A file that waits for its wakeup is woken even if a program polls the file before the wakeup."""
    topic, kernel = Topic(), Notification()
    follows = [topic.follow() for _ in range(WAKEUPS_PER_TURN + 1)]
    for follow in follows:
        assert 0 == follow.poll(kernel)
    topic.partitions[0].add(b"a")
    assert WAKEUPS_PER_TURN == kernel.told
    for follow in follows:
        assert follow.poll(kernel) & select.POLLIN

    await trio.testing.wait_all_tasks_blocked()

    assert WAKEUPS_PER_TURN + 1 == kernel.told


async def test_a_readable_file_is_notified_too():
    """Even a poll that finds the file readable is notified of the next record, as an edge-triggered epoll(7) needs."""
    topic, kernel = Topic(), Notification()
    follow = topic.follow()
    topic.partitions[0].add(b"a")
    assert follow.poll(kernel) & select.POLLIN
    assert b"a\n" == await follow.read(100)

    topic.partitions[0].add(b"b")

    assert 1 == kernel.told
