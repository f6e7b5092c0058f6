"""Sizes that are found out behind the scenes."""

from __future__ import annotations

import threading

import trio
import trio.lowlevel
import trio.testing

from topicfs.fusefs.nodes.measuring_queue import MeasuringQueue
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.errors import PartitionOfflineError, SegmentDeletedError


class MeasuredView:
    """A view of so many slices; at the one that is named, measuring fails."""

    def __init__(self, slices: int, *, fails: Exception | None = None) -> None:
        self.slices, self.fails, self.calls = slices, fails, 0

    @property
    def measured(self) -> bool:
        return self.slices == 0

    def measure(self, *, max_bytes: int | None = None) -> bool:
        del max_bytes
        self.calls += 1
        if self.fails is not None:
            raise self.fails
        self.slices -= 1
        return self.measured


async def measured_later(*views: MeasuredView) -> list[MeasuredView]:
    """Have views measured behind the scenes until nothing more happens; those that were told of."""
    queue, told = MeasuringQueue(BlockingCalls()), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        for view in views:
            queue.measure_later(view, lambda view=view: told.append(view))  # type: ignore[misc]
        with trio.fail_after(20):
            while len(told) < len(views):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return told


async def test_views_are_measured_one_after_the_other():
    """Each as a whole."""
    views = [MeasuredView(3), MeasuredView(1)]
    assert views == await measured_later(*views)
    assert [3, 1] == [view.calls for view in views]


async def test_what_cannot_be_measured_holds_nothing_up():
    """Its records are gone, or an engine does not answer: it is not tried again and again."""
    gone = MeasuredView(3, fails=SegmentDeletedError("x"))
    silent = MeasuredView(3, fails=PartitionOfflineError("x"))
    last = MeasuredView(2)
    assert [gone, silent, last] == await measured_later(gone, silent, last)
    assert [1, 1, 2] == [view.calls for view in (gone, silent, last)]


async def test_nobody_waits_for_what_is_gone():
    """As long as they would for what takes time."""
    view = MeasuredView(3, fails=SegmentDeletedError("x"))
    assert not await MeasuringQueue(BlockingCalls()).measure(view, seconds=3600)
    assert 1 == view.calls


async def test_who_opens_a_file_measures_behind_a_measurement_under_way(nursery: trio.Nursery):
    """That one may have passed the end before the last records came."""

    class GrowingView(MeasuredView):
        def measure(self, *, max_bytes: int | None = None) -> bool:
            begun.set()
            go_on.wait(20)
            return super().measure(max_bytes=max_bytes)

    begun, go_on = threading.Event(), threading.Event()
    queue, view = MeasuringQueue(BlockingCalls()), GrowingView(2)
    nursery.start_soon(queue.run)
    queue.measure_later(view, lambda: None, little=True)
    with trio.fail_after(20):
        while not begun.is_set():
            await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as opening:
            opening.start_soon(lambda: queue.measure_little(view, seconds=20))
            await trio.testing.wait_all_tasks_blocked()
            go_on.set()
    assert (2, True) == (view.calls, view.measured)
