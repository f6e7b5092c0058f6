"""News from any thread."""

from __future__ import annotations

import threading

import trio
import trio.testing

from fusefs.following.wakeups import Wakeups


async def test_news_of_the_loops_own_thread_are_there_at_once():
    """No turn of the event loop lies between an append and its followers."""
    wakeups, heard = Wakeups(), []
    wakeups.listeners.add(lambda: heard.append("a"))

    wakeups.signal()

    assert ["a"] == heard


async def test_news_of_another_thread_come_into_the_loop_as_one():
    """However often they were told meanwhile."""
    wakeups, heard = Wakeups(), []
    wakeups.listeners.add(lambda: heard.append(trio.lowlevel.current_trio_token()))

    def tell() -> None:
        for _ in range(5):
            wakeups.signal()

    with trio.CancelScope(shield=True):
        # The loop is kept busy by nothing but this thread, and cannot deliver before all are told.
        await trio.to_thread.run_sync(tell)
    await trio.testing.wait_all_tasks_blocked()

    assert 1 <= len(heard) <= 5
    assert set(heard) == {trio.lowlevel.current_trio_token()}


async def test_news_that_come_while_news_are_delivered_are_delivered_too():
    """A listener may have looked already at what they are about."""
    wakeups, heard = Wakeups(), []

    def listen() -> None:
        heard.append("a")
        if len(heard) == 1:
            telling = threading.Thread(target=wakeups.signal)
            telling.start()
            telling.join()

    wakeups.listeners.add(listen)
    await trio.to_thread.run_sync(wakeups.signal)
    await trio.testing.wait_all_tasks_blocked()

    assert ["a", "a"] == heard


async def test_a_cancelled_listener_hears_nothing():
    """Twice is harmless."""
    wakeups, heard = Wakeups(), []
    cancel = wakeups.listeners.add(lambda: heard.append("a"))
    cancel()
    cancel()

    wakeups.signal()

    assert [] == heard
