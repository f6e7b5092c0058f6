"""Views that are measured in the background."""

from __future__ import annotations

import threading

import trio
import trio.lowlevel
import trio.testing

from topicfs.fusefs.nodes.view_measurer import ViewMeasurer
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.storage.errors import PartitionOfflineError, SegmentDeletedError


class MeasuredView:
    """A view that needs `slices` steps to be measured, or raises `fails`."""

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
    """Measure views in the background until all have finished; return them in the order in which they finished."""
    queue, told = ViewMeasurer(BlockingCalls()), []
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
    """Each view is measured completely before the next view is measured."""
    views = [MeasuredView(3), MeasuredView(1)]
    assert views == await measured_later(*views)
    assert [3, 1] == [view.calls for view in views]


async def test_a_view_that_cannot_be_measured_does_not_block_others():
    """If a view cannot be measured, it is tried once, and the other views are measured."""
    gone = MeasuredView(3, fails=SegmentDeletedError("x"))
    silent = MeasuredView(3, fails=PartitionOfflineError("x"))
    last = MeasuredView(2)
    assert [gone, silent, last] == await measured_later(gone, silent, last)
    assert [1, 1, 2] == [view.calls for view in (gone, silent, last)]


async def test_measure_does_not_wait_for_deleted_records():
    """If records of the view were deleted, `measure` returns immediately, because the view cannot be measured."""
    view = MeasuredView(3, fails=SegmentDeletedError("x"))
    assert not await ViewMeasurer(BlockingCalls()).measure(view, seconds=3600)
    assert 1 == view.calls


async def test_a_file_opened_during_a_measurement_is_measured_again(nursery: trio.Nursery):
    """If a file is opened while it is measured, it is measured again, as the newest records may have been missed."""

    class GrowingView(MeasuredView):
        def measure(self, *, max_bytes: int | None = None) -> bool:
            begun.set()
            go_on.wait(20)
            return super().measure(max_bytes=max_bytes)

    begun, go_on = threading.Event(), threading.Event()
    queue, view = ViewMeasurer(BlockingCalls()), GrowingView(2)
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
