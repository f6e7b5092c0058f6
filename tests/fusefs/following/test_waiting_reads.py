"""The reads that wait: bound, waking, and who ends them."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio
import trio.testing

from topicfs.fusefs.errors import FileError
from topicfs.fusefs.following.waiting_reads import (
    HOLDER_SEARCH_SECONDS,
    LOOK_SECONDS,
    UNSEEN_READER_SECONDS,
    WaitingReads,
)
from topicfs.fusefs.processes.signals import DescriptorHolder, Look
from topicfs.fusefs.threads.blocking_calls import BlockingCalls

CALM, SIGNALED = Look(1, stuck=False, pending=0), Look(1, stuck=True, pending=2)


class Bench:
    """Waiting reads, the processes they belong to, and what each came to."""

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
def bench() -> Bench:
    return Bench()


async def test_a_read_ends_when_it_is_woken(bench: Bench, nursery: trio.Nursery):
    """And counts as long as it waits."""
    bench.processes[7] = CALM
    nursery.start_soon(bench.read, "a", 7)
    await trio.testing.wait_all_tasks_blocked()
    assert 1 == len(bench.waiting)

    bench.wakes["a"]()
    await trio.testing.wait_all_tasks_blocked()

    assert {"a": "woken"} == bench.ends
    assert 0 == len(bench.waiting)


async def test_one_more_than_the_bound_is_refused(nursery: trio.Nursery):
    """EMFILE; the others wait on."""
    bench = Bench(bound=2)
    for name in ("a", "b", "c"):
        nursery.start_soon(bench.read, name, 7)
    await trio.testing.wait_all_tasks_blocked()

    assert list(bench.ends.values()) == [errno.EMFILE]
    bench.waiting.close()


async def test_no_other_user_takes_all_waiting_reads(nursery: trio.Nursery):
    """Each has a quarter, processes that cannot be seen have one together; the owner and root have what is left."""
    bench = Bench(bound=12, owner=500)
    users = {7: 1000, 8: 1000, 9: 1001, 10: 500, 11: 0}
    bench.processes = {pid: Look(1, stuck=False, pending=0, user=user) for pid, user in users.items()}
    for number, pid in enumerate((7, 8, 7, 7, 8, 9, 9, 9, 9, 0, 99, 0, 99, 10, 11, 10, 10)):
        nursery.start_soon(bench.read, f"{number} of {pid}", pid)
        await trio.testing.wait_all_tasks_blocked()

    assert ["3 of 7", "4 of 8", "8 of 9", "12 of 99", "16 of 10"] == list(bench.ends)
    assert {errno.EMFILE} == set(bench.ends.values())
    bench.waiting.close()


async def test_closing_ends_all_and_every_later_one(bench: Bench, nursery: trio.Nursery):
    """When the mount ends."""
    nursery.start_soon(bench.read, "a", 7)
    await trio.testing.wait_all_tasks_blocked()
    bench.waiting.close()
    await bench.read("b", 7)
    await trio.testing.wait_all_tasks_blocked()

    assert bench.ends == {"a": errno.ENOTCONN, "b": errno.ENOTCONN}


async def test_a_signal_ends_the_reads_of_that_process_alone(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    """EINTR, and only when a signal is pending."""
    bench.processes = {7: CALM, 8: CALM}
    nursery.start_soon(bench.waiting.watch)
    nursery.start_soon(bench.read, "a", 7)
    nursery.start_soon(bench.read, "b", 8)
    await trio.sleep(60)
    assert {} == bench.ends

    bench.processes[8] = SIGNALED
    await trio.sleep(0.2)

    assert bench.ends == {"b": errno.EINTR}
    bench.waiting.close()
    nursery.cancel_scope.cancel()


async def test_a_read_that_is_answered_soon_costs_no_look(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    """As nearly every question to a remote engine is: a look takes as long as its answer does."""
    bench.processes = {7: CALM, 8: CALM}
    nursery.start_soon(bench.waiting.watch)
    nursery.start_soon(bench.read, "a", 7)
    await trio.sleep(LOOK_SECONDS / 2)
    bench.wakes["a"]()
    nursery.start_soon(bench.read, "b", 8)
    await trio.sleep(LOOK_SECONDS)

    assert ({8}, {"a": "woken"}) == (bench.looked_at, bench.ends)
    bench.waiting.close()
    nursery.cancel_scope.cancel()


async def test_many_short_waits_cost_no_search(
    bench: Bench, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    """All of /proc would be read, once a second, while a program appends line by line to a remote engine."""
    bench.processes[7] = CALM
    nursery.start_soon(bench.waiting.watch)
    for number in range(10):
        nursery.start_soon(bench.read, str(number), 7)
        await trio.sleep(HOLDER_SEARCH_SECONDS / 2)
        bench.wakes[str(number)]()
    assert 0 == bench.searches
    nursery.start_soon(bench.read, "long", 7)
    while not bench.searches:  # It is made in a thread, for which this clock does not wait.
        await trio.sleep(HOLDER_SEARCH_SECONDS)
    bench.waiting.close()
    nursery.cancel_scope.cancel()


async def test_the_read_of_a_process_that_is_gone_ends(bench: Bench, nursery: trio.Nursery):
    """Where nobody else holds the file."""
    nursery.start_soon(bench.waiting.watch)
    nursery.start_soon(bench.read, "a", 7)
    while not bench.ends:
        await trio.sleep(0.01)

    assert bench.ends == {"a": errno.EINTR}
    nursery.cancel_scope.cancel()


async def test_the_heir_of_a_process_that_is_gone_is_looked_at_instead(bench: Bench, nursery: trio.Nursery):
    """A shell that opened the file and left it to a child."""
    bench.processes[9] = CALM
    bench.holders = [DescriptorHolder(9, (9, 1))]
    nursery.start_soon(bench.waiting.watch)
    nursery.start_soon(bench.read, "a", 7)
    while 9 not in bench.looked_at:
        await trio.sleep(0.01)
    assert {} == bench.ends

    bench.processes[9] = SIGNALED
    while not bench.ends:
        await trio.sleep(0.01)

    assert bench.ends == {"a": errno.EINTR}
    nursery.cancel_scope.cancel()


async def test_a_child_that_reads_its_parents_descriptor_can_be_ended(
    bench: Bench, nursery: trio.Nursery, searching: None
):
    """The opener is calm; a stuck descendant of its that holds the file wants to end."""
    bench.processes[7] = CALM
    nursery.start_soon(bench.waiting.watch)
    nursery.start_soon(bench.read, "a", 7)
    nursery.start_soon(bench.read, "of another family", 70)
    bench.processes[70] = CALM
    bench.holders = [DescriptorHolder(9, (9, 8, 7, 1))]
    while "a" not in bench.ends:
        await trio.sleep(0.01)

    assert bench.ends == {"a": errno.EINTR}
    bench.waiting.close()
    nursery.cancel_scope.cancel()


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for the holders of descriptors all the time."""
    monkeypatch.setattr("topicfs.fusefs.following.waiting_reads.HOLDER_SEARCH_SECONDS", 0.0)


async def test_a_process_that_cannot_be_seen_waits_within_a_bound(
    bench: Bench, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
):
    """Another pid namespace: pid 0."""
    assert UNSEEN_READER_SECONDS > 1
    monkeypatch.setattr("topicfs.fusefs.following.waiting_reads.UNSEEN_READER_SECONDS", 0.05)
    nursery.start_soon(bench.waiting.watch)
    nursery.start_soon(bench.read, "a", 0)
    while not bench.ends:
        await trio.sleep(0.01)

    assert bench.ends == {"a": errno.EINTR}
    nursery.cancel_scope.cancel()
