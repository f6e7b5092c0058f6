"""The stand-in for trio under pyfuse3's request loop: who gets to run when, and where it refuses to be used."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
import trio
import trio.lowlevel

from topicfs.fusefs.mounting import request_loop
from topicfs.fusefs.mounting.request_loop import (
    REQUESTS_IN_A_ROW,
    RequestLock,
    RequestLoop,
    Turns,
    choose,
    slow_loop_warning,
    use,
)
from topicfs.storage.errors import InvalidConfigError


def library(version: str = "3.5.0", event_loop: object = trio) -> ModuleType:
    """As much of pyfuse3 as is looked at."""
    return cast("ModuleType", SimpleNamespace(__version__=version, trio=event_loop))


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def stand_in() -> object:
    pyfuse3 = library()
    use(RequestLoop.SHORT, pyfuse3)
    return pyfuse3.trio


def test_the_stand_in_takes_and_gives_back_trios_place():
    """Everything that it does not replace is trio's own."""
    pyfuse3 = library()
    use(RequestLoop.SHORT, pyfuse3)
    assert pyfuse3.trio is not trio
    assert pyfuse3.trio.open_nursery is trio.open_nursery
    assert pyfuse3.trio.ClosedResourceError is trio.ClosedResourceError
    assert pyfuse3.trio.lowlevel.notify_closing is trio.lowlevel.notify_closing
    use(RequestLoop.PLAIN, pyfuse3)
    assert pyfuse3.trio is trio


@pytest.mark.parametrize("other", [library("3.4.2"), library("4.0"), library(event_loop=object())])
def test_what_it_was_not_made_for_is_refused_or_served_plainly(other: ModuleType):
    """An error for who asked for it, the plain loop and a warning for who asked for nothing; asked for plainly it is never wrong."""
    assert choose(None, other) is RequestLoop.PLAIN
    warning = slow_loop_warning(None, RequestLoop.PLAIN, other)
    assert (
        f"slow request loop: pyfuse3 {other.__version__} is not known here; install version 3.5.x" == warning
    )
    assert choose(RequestLoop.PLAIN, other) is RequestLoop.PLAIN
    assert slow_loop_warning(RequestLoop.PLAIN, RequestLoop.PLAIN, other) is None
    assert slow_loop_warning(None, RequestLoop.SHORT, library()) is None
    with pytest.raises(InvalidConfigError, match=r"short request loop does not fit pyfuse3 .*only 3\.5\.x"):
        choose(RequestLoop.SHORT, other)


def test_where_it_fits_one_gets_what_one_asks_for(monkeypatch: pytest.MonkeyPatch):
    """And the direct one for nothing, or the short one where libfuse is not to be stood in front of."""
    asked = [None, *RequestLoop]
    monkeypatch.setattr(request_loop, "may_stand_in_front", lambda: True)
    assert [RequestLoop.DIRECT, *RequestLoop] == [choose(loop, library()) for loop in asked]
    monkeypatch.setattr(request_loop, "may_stand_in_front", lambda: False)
    expected = [RequestLoop.SHORT, RequestLoop.SHORT, RequestLoop.PLAIN]
    assert expected == [choose(loop, library()) for loop in asked if loop is not RequestLoop.DIRECT]
    with pytest.raises(InvalidConfigError, match="direct request loop needs"):
        choose(RequestLoop.DIRECT, library())


async def test_a_request_that_is_there_needs_no_scheduler(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    """Nobody else runs in between."""
    monkeypatch.setattr(request_loop, "NANOSECONDS_IN_A_ROW", 10**12)
    ran: list[str] = []
    lowlevel = stand_in().lowlevel
    os.write(pipe[1], b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, lambda: None)
        nursery.start_soon(_note, ran)
        lock = RequestLock(Turns())
        async with lock:
            await lowlevel.wait_readable(pipe[0])
        assert [] == ran


async def _note(ran: list[str]) -> None:
    ran.append("other")


async def test_without_a_request_others_run_until_one_comes(pipe: tuple[int, int]):
    """It is trio that waits."""
    lowlevel = stand_in().lowlevel
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lowlevel.wait_readable, pipe[0])
        await trio.testing.wait_all_tasks_blocked()
        os.write(pipe[1], b"x")


async def test_the_end_of_the_session_reaches_who_waits(pipe: tuple[int, int]):
    """As pyfuse3.terminate tells it."""
    lowlevel = stand_in().lowlevel
    ended: list[bool] = []

    async def wait() -> None:
        try:
            await lowlevel.wait_readable(pipe[0])
        except trio.ClosedResourceError:
            ended.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        lowlevel.notify_closing(pipe[0])
    assert [True] == ended


async def test_others_get_their_turn_after_so_many_requests(monkeypatch):
    """However many more are there."""
    monkeypatch.setattr(request_loop, "NANOSECONDS_IN_A_ROW", 10**12)
    assert await _served_before_others() in {REQUESTS_IN_A_ROW, 2 * REQUESTS_IN_A_ROW}


async def test_others_get_their_turn_after_so_long(monkeypatch):
    """However few requests it were."""
    monkeypatch.setattr(request_loop, "NANOSECONDS_IN_A_ROW", 0)
    assert await _served_before_others() in {1, 2}


async def _served_before_others() -> int:
    """Requests; of two tasks that may run trio takes either first, so that it may be twice a turn's."""
    lock, ran, served = RequestLock(Turns()), [], 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_note, ran)
        while not ran:
            served += 1
            async with lock:
                pass
    return served


async def test_the_lock_is_one():
    """However its holders and those who wait for it take turns, one has it at a time, and everybody gets it."""
    lock, inside, got = RequestLock(Turns()), [], []

    async def work(name: int) -> None:
        for _ in range(20):
            async with lock:
                inside.append(name)
                await trio.lowlevel.checkpoint()
                assert inside == [name]
                inside.pop()
            got.append(name)

    async with trio.open_nursery() as nursery:
        for name in range(5):
            nursery.start_soon(work, name)
    assert [20] * 5 == [got.count(name) for name in range(5)]


async def test_another_fetches_requests_while_one_is_handled_slowly():
    """Who was woken, and found that the other went on, takes over when that one waits for something else."""
    lock, took_over = RequestLock(Turns()), trio.Event()

    async def next_reader() -> None:
        async with lock:
            took_over.set()

    async with trio.open_nursery() as nursery:
        async with lock:
            nursery.start_soon(next_reader)
            await trio.testing.wait_all_tasks_blocked()
        async with lock:  # A second request, read before the woken one ran.
            pass
        with trio.fail_after(30):
            await took_over.wait()


def test_no_version_is_installed_whose_loop_was_not_read():
    """The package requires only versions of pyfuse3 that work with the fast loop; with others a mount is three times slower."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (wanted,) = project["project"]["optional-dependencies"]["mount"]
    assert ("pyfuse3>=3.5,<3.6", ("3.5.",)) == (wanted.partition(";")[0], request_loop.READ_VERSIONS)
