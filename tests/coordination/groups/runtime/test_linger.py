"""Tests of the wait that combines simultaneous joins and leaves of a group into one rebalance."""

from __future__ import annotations

import pytest

from tests.doubles.manual_clock import ManualClock
from topicfs.coordination.groups.runtime.runner import MAX_LINGER_MS, MAX_WAKEUPS, Linger

SECONDS = 0.003


@pytest.fixture
def linger(clock: ManualClock) -> Linger:
    return Linger(SECONDS, clock)


def test_a_wakeup_before_begin_does_nothing(linger: Linger):
    """A wakeup before `begin` neither starts nor ends a wait."""
    linger.woken(1.0)
    assert (False, False) == (linger.is_waiting, linger.take())


def test_a_wait_ends_without_work(linger: Linger):
    """A wait ends after `seconds` without work. Any work during the wait starts the `seconds` again."""
    linger.begin()
    for quiet in (SECONDS / 2, 0.0, SECONDS / 2):
        linger.woken(quiet)
        assert not linger.take()
    linger.woken(SECONDS / 2)
    assert (True, False) == (linger.take(), linger.is_waiting)


def test_a_wait_ends_after_too_many_wakeups(linger: Linger):
    """The wait ends after MAX_WAKEUPS wakeups. The next wait counts its wakeups from zero."""
    for _ in range(2):
        linger.begin()
        for _ in range(MAX_WAKEUPS - 1):
            linger.woken(0.0)
        assert not linger.take()
        linger.woken(0.0)
        assert linger.take()


def test_a_wait_lasts_as_long_as_the_last_work(linger: Linger, clock: ManualClock):
    """If work keeps arriving, a wait lasts as long as the previous work took (`goes_by`).

    The wait ends earlier if no work arrives for a quarter of that time.
    """
    linger.goes_by(400)
    linger.begin()
    for _ in range(10 * MAX_WAKEUPS):
        linger.woken(0.0)
    assert not linger.take()
    clock.advance(400)
    linger.woken(0.0)
    assert linger.take()
    linger.begin()
    linger.woken(0.05)
    assert not linger.take()
    linger.woken(0.05)
    assert linger.take()


def test_a_wait_is_limited(linger: Linger, clock: ManualClock):
    """A wait is limited to MAX_LINGER_MS if the previous work took longer, and also ends if the clock is set back."""
    linger.goes_by(60 * MAX_LINGER_MS)
    for passed in (MAX_LINGER_MS, -3_600_000):
        linger.begin()
        clock.advance(passed)
        for _ in range(MAX_WAKEUPS):
            linger.woken(0.0)
        assert linger.take()
