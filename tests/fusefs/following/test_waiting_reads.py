"""Reads that wait: how many are allowed, how they are woken, and which events end them."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio
import trio.testing

from topicfs.fusefs.errors import FileError
from topicfs.fusefs.following.waiting_reads import (
    HOLDER_SEARCH_SECONDS,
    PROGRAM_CHECK_SECONDS,
    UNSEEN_READER_SECONDS,
    WaitingReads,
)
from topicfs.fusefs.processes.signals import DescriptorHolder, Look
from topicfs.fusefs.threads.blocking_calls import BlockingCalls

CALM, SIGNALED = Look(1, stuck=False, pending=0), Look(1, stuck=True, pending=2)


class Bench:
    """Waiting reads, the states of their processes, and the result of each read."""

    def __init__(self, bound: int = 10, owner: int | None = None) -> None:
        self.processes: dict[int, Look | None] = {}
        self.holders: list[DescriptorHolder] = []
        self.looked_at: set[int] = set()
        self.searches = 0
        self.ends: dict[str, int | str] = {}
        self.wakes: dict[str, Callable[[], None]] = {}
        self.waiting = WaitingReads(
            BlockingCalls(),
            bound=bound,
            owner=owner,
            look=self.look,
            holders=self.search,
        )

    def search(self, path: str, stuck: bool) -> list[DescriptorHolder]:
        del stuck
        self.searches += 1
        return [holder for holder in self.holders if path == "/orders/0/follow"]

    def look(self, pid: int) -> Look | None:
        self.looked_at.add(pid)
        return self.processes.get(pid)

    async def read(self, name: str, pid: int) -> None:
        def listen(listener: Callable[[], None]) -> Callable[[], None]:
            self.wakes[name] = listener
            return lambda: None

        try:
            await self.waiting.wait(listen, pid=pid, path="/orders/0/follow")
        except FileError as error:
            self.ends[name] = error.number
        else:
            self.ends[name] = "woken"


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    """Waiting reads whose processes are watched until the end of the test."""
    bench = Bench()
    nursery.start_soon(bench.waiting.watch)
    return bench


async def test_a_read_ends_when_it_is_woken(bench: Bench, nursery: trio.Nursery):
    """A waiting read ends when it is woken, and counts as waiting until then."""
    bench.processes[7] = CALM
    nursery.start_soon(bench.read, "a", 7)
    await trio.testing.wait_all_tasks_blocked()
    assert 1 == len(bench.waiting)

    bench.wakes["a"]()
    await trio.testing.wait_all_tasks_blocked()

    assert {"a": "woken"} == bench.ends
    assert 0 == len(bench.waiting)


async def test_one_more_than_the_bound_is_refused(nursery: trio.Nursery):
    """A waiting read beyond the limit fails with EMFILE; the other reads keep waiting."""
    bench = Bench(bound=2)
    for name in ("a", "b", "c"):
        nursery.start_soon(bench.read, name, 7)
    await trio.testing.wait_all_tasks_blocked()

    assert list(bench.ends.values()) == [errno.EMFILE]


async def test_no_other_user_takes_all_waiting_reads(nursery: trio.Nursery):
    """Each user may have a quarter of the waiting reads; the mount's owner and root may have all that remain.

    All processes that /proc does not show count as one user.
    """
    bench = Bench(bound=12, owner=500)
    users = {7: 1000, 8: 1000, 9: 1001, 10: 500, 11: 0}
    bench.processes = {pid: Look(1, stuck=False, pending=0, user=user) for pid, user in users.items()}
    for number, pid in enumerate((7, 8, 7, 7, 8, 9, 9, 9, 9, 0, 99, 0, 99, 10, 11, 10, 10)):
        nursery.start_soon(bench.read, f"{number} of {pid}", pid)
        await trio.testing.wait_all_tasks_blocked()

    assert ["3 of 7", "4 of 8", "8 of 9", "12 of 99", "16 of 10"] == list(bench.ends)
    assert {errno.EMFILE} == set(bench.ends.values())


async def test_the_end_of_the_mount_ends_waiting_and_later_reads(nursery: trio.Nursery):
    """When the mount ends, waiting and later reads fail with ENOTCONN."""
    bench = Bench()
    nursery.start_soon(bench.read, "a", 7)
    await trio.testing.wait_all_tasks_blocked()
    bench.waiting.close()
    await bench.read("b", 7)
    await trio.testing.wait_all_tasks_blocked()

    assert bench.ends == {"a": errno.ENOTCONN, "b": errno.ENOTCONN}


async def test_a_signal_ends_the_reads_of_that_process_alone(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    """A pending signal ends the reads of its process with EINTR, and no other reads."""
    bench.processes = {7: CALM, 8: CALM}
    nursery.start_soon(bench.read, "a", 7)
    nursery.start_soon(bench.read, "b", 8)
    await trio.sleep(60)
    assert {} == bench.ends

    bench.processes[8] = SIGNALED
    await trio.sleep(0.2)

    assert bench.ends == {"b": errno.EINTR}


async def test_a_short_wait_examines_no_process(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    """If a read waits for less than PROGRAM_CHECK_SECONDS, its process is not examined."""
    bench.processes = {7: CALM, 8: CALM}
    nursery.start_soon(bench.read, "a", 7)
    await trio.sleep(PROGRAM_CHECK_SECONDS / 2)
    bench.wakes["a"]()
    nursery.start_soon(bench.read, "b", 8)
    await trio.sleep(PROGRAM_CHECK_SECONDS)

    assert ({8}, {"a": "woken"}) == (bench.looked_at, bench.ends)


async def test_many_short_waits_cost_no_search(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    """Short waits never search /proc for processes that have a file open; only a long wait does."""
    bench.processes[7] = CALM
    for number in range(10):
        nursery.start_soon(bench.read, str(number), 7)
        await trio.sleep(HOLDER_SEARCH_SECONDS / 2)
        bench.wakes[str(number)]()
    assert 0 == bench.searches
    nursery.start_soon(bench.read, "long", 7)
    while not bench.searches:  # A thread searches, and the mock clock does not wait for threads.
        await trio.sleep(HOLDER_SEARCH_SECONDS)


async def test_the_read_of_a_process_that_is_gone_ends(bench: Bench):
    """If the reading process has ended and no other process has the file open, the read ends with EINTR."""
    await bench.read("a", 7)

    assert {"a": errno.EINTR} == bench.ends


async def test_the_process_that_inherited_the_file_is_examined_instead(bench: Bench, nursery: trio.Nursery):
    """If the process that opened the file has ended, the process that inherited the file is examined instead."""
    bench.processes[9] = CALM
    bench.holders = [DescriptorHolder(9, (9, 1))]
    nursery.start_soon(bench.read, "a", 7)
    while 9 not in bench.looked_at:
        await trio.sleep(0.01)
    assert {} == bench.ends

    bench.processes[9] = SIGNALED
    while not bench.ends:
        await trio.sleep(0.01)

    assert {"a": errno.EINTR} == bench.ends


async def test_a_child_that_reads_its_parents_descriptor_can_be_ended(
    bench: Bench, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
):
    """A signal to a child that inherited the file ends the child's read, even if its parent has no pending signal."""
    monkeypatch.setattr("topicfs.fusefs.following.waiting_reads.HOLDER_SEARCH_SECONDS", 0.0)
    bench.processes = {7: CALM, 70: CALM}
    bench.holders = [DescriptorHolder(9, (9, 8, 7, 1))]
    nursery.start_soon(bench.read, "of another family", 70)
    await bench.read("a", 7)

    assert {"a": errno.EINTR} == bench.ends


async def test_a_process_that_cannot_be_seen_waits_within_a_bound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """A process in another PID namespace has pid 0 here; its read ends after UNSEEN_READER_SECONDS."""
    assert UNSEEN_READER_SECONDS > 1
    monkeypatch.setattr("topicfs.fusefs.following.waiting_reads.UNSEEN_READER_SECONDS", 0.05)
    await bench.read("a", 0)

    assert {"a": errno.EINTR} == bench.ends
