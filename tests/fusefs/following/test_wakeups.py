"""Wakeups of followers by signals from any thread."""

from __future__ import annotations

import threading
from itertools import pairwise

import trio
import trio.testing

from topicfs.fusefs.following.wakeups import WAKEUPS_PER_TURN, Waker, Wakeups


async def test_a_signal_in_the_loops_thread_calls_listeners_immediately():
    """A signal in the event loop's thread calls the listeners immediately."""
    wakeups, heard = Wakeups(Waker()), []
    wakeups.listen(lambda: heard.append("a"))

    wakeups.signal()

    assert ["a"] == heard


async def test_signals_of_another_thread_call_listeners_in_the_loop():
    """Signals from another thread call the listeners in the event loop; several signals may cause one call."""
    wakeups, heard = Wakeups(Waker()), []
    wakeups.listen(lambda: heard.append(trio.lowlevel.current_trio_token()))

    def tell() -> None:
        for _ in range(5):
            wakeups.signal()

    with trio.CancelScope(shield=True):
        # The event loop cannot run until this thread has sent all its signals.
        await trio.to_thread.run_sync(tell)
    await trio.testing.wait_all_tasks_blocked()

    assert 1 <= len(heard) <= 5
    assert set(heard) == {trio.lowlevel.current_trio_token()}


async def test_a_signal_during_a_call_of_listeners_calls_them_again():
    """If a signal arrives while listeners are called, all listeners are called again.

    A listener that was called before the signal may have missed the new records.
    """
    wakeups, heard = Wakeups(Waker()), []

    def listen() -> None:
        heard.append("a")
        if len(heard) == 1:
            telling = threading.Thread(target=wakeups.signal)
            telling.start()
            telling.join()

    wakeups.listen(listen)
    await trio.to_thread.run_sync(wakeups.signal)
    await trio.testing.wait_all_tasks_blocked()

    assert ["a", "a"] == heard


async def test_a_waiter_is_called_once():
    """A waiter is called once, and must wait again for more; a canceled waiter is never called."""
    wakeups, heard = Wakeups(Waker()), []
    wakeups.wait(lambda: heard.append("a"))
    cancel = wakeups.wait(lambda: heard.append("b"))
    cancel()
    cancel()

    wakeups.signal()
    wakeups.signal()

    assert ["a"] == heard
    assert not wakeups.is_awaited


async def test_many_waiters_are_woken_a_few_in_a_turn():
    """A signal wakes WAKEUPS_PER_TURN waiters at a time, and lets other tasks run in between."""
    wakeups, heard = Wakeups(Waker()), []
    for number in range(9 * WAKEUPS_PER_TURN):
        wakeups.wait(lambda number=number: heard.append(number))

    wakeups.signal()
    seen = [len(heard)]
    while len(heard) < 9 * WAKEUPS_PER_TURN:
        await trio.lowlevel.checkpoint()
        seen.append(len(heard))

    assert WAKEUPS_PER_TURN == seen[0]
    # Tasks may run in any order, so the waker may have two turns between two checks here.
    assert all(later - earlier <= 2 * WAKEUPS_PER_TURN for earlier, later in pairwise(seen))
    assert set(range(9 * WAKEUPS_PER_TURN)) == set(heard)


async def test_a_waiter_cancelled_while_others_are_woken_is_not_called():
    """A waiter that is canceled while others are woken is not called, but the waiters after it are called."""
    wakeups, heard = Wakeups(Waker()), []
    cancels = [wakeups.wait(lambda n=number: heard.append(n)) for number in range(2 * WAKEUPS_PER_TURN)]
    wakeups.signal()
    left = set(range(2 * WAKEUPS_PER_TURN)) - set(heard)
    cancels[min(left)]()
    await trio.testing.wait_all_tasks_blocked()

    assert left - set(heard) == {min(left)}


async def test_turn_waits_for_the_waiters_that_are_due():
    """`turn` waits until all waiters that are due were woken; if no waiter is due, it returns immediately."""
    waker, heard = Waker(), []
    await waker.turn()
    wakeups = Wakeups(waker)
    for _ in range(2 * WAKEUPS_PER_TURN):
        wakeups.wait(lambda: heard.append("a"))
    wakeups.signal()

    assert waker.is_busy
    await waker.turn()

    assert 2 * WAKEUPS_PER_TURN == len(heard)
    assert not waker.is_busy
