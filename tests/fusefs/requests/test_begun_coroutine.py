"""A coroutine that is started in one place and continued in another place."""

from __future__ import annotations

import pytest
import trio

from topicfs.fusefs.requests.begun_coroutine import BegunCoroutine


def begin(coroutine):
    return BegunCoroutine(coroutine, coroutine.send(None))


async def test_awaiting_a_begun_coroutine_continues_it():
    """Awaiting a coroutine that was started continues it, over several waits, and returns its result."""
    given = []

    async def waits() -> str:
        with trio.move_on_after(60):
            given.append(await trio.to_thread.run_sync(len, "a"))
            given.append(await trio.to_thread.run_sync(len, "ab"))
        return "done"

    assert "done" == await begin(waits())
    assert [1, 2] == given


async def test_an_error_is_raised_in_the_awaiting_task():
    """An exception that the coroutine raises after a wait is raised in the task that awaits it."""

    async def fails() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        await begin(fails())


async def test_the_awaiting_task_can_be_canceled():
    """Canceling the task that awaits the coroutine cancels the coroutine, which then cleans up."""
    cleaned = []

    async def waits() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cleaned.append(True)

    with trio.move_on_after(0.01) as patience:
        await begin(waits())
    assert patience.cancelled_caught
    assert [True] == cleaned
