"""Calls to a remote engine in threads: how many run at a time, and what happens if no thread can start."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import trio
import trio.testing

from topicfs.fusefs.threads.remote import RemoteCalls


async def test_more_calls_than_threads_take_turns(nursery: trio.Nursery):
    """If there are more calls than threads, calls wait for a free thread, and each call returns its own result."""
    calls, begun, ends, answers = RemoteCalls(2), [], threading.Semaphore(0), {}

    def call(number: int) -> int:
        begun.append(number)
        ends.acquire()
        return number

    async def run(number: int) -> None:
        answers[number] = await calls.run(partial(call, number))

    for number in range(5):
        nursery.start_soon(run, number)
        await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(30):
        while len(begun) < 2:
            await trio.sleep(0.001)
        assert {0, 1} == set(begun)
        for _ in range(5):
            ends.release()
        while len(answers) < 5:
            await trio.sleep(0.001)
    assert {number: number for number in range(5)} == answers
    assert {2, 3, 4} == set(begun[2:])


async def test_an_exception_of_a_call_is_raised_in_the_awaiting_task():
    """If a call raises an exception, it is raised where the call is awaited; the next call works."""
    calls = RemoteCalls(1)
    with pytest.raises(ZeroDivisionError):
        await calls.run(lambda: 1 // 0)
    assert 1 == await calls.run(lambda: 1)


async def test_a_system_without_threads_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch):
    """If no thread can start, the call fails; later calls work as soon as threads can start."""

    def none_left(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    calls = RemoteCalls(1)
    with monkeypatch.context() as patch:
        patch.setattr("trio.lowlevel.start_thread_soon", none_left)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await calls.run(lambda: 1)
    assert 1 == await calls.run(lambda: 1)
