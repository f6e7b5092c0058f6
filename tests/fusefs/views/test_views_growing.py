"""Views that grow: sizes after appends, the cost of sizes, and views that have not been measured yet."""

from __future__ import annotations

import threading

import pytest

from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, one_by_one, read_all
from topicfs.fusefs.forms import FORMS, JSON, VALUES, Form
from topicfs.fusefs.views import measure
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.errors import SegmentDeletedError
from topicfs.storage.model import Offset


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or ".values")
def test_the_size_follows_every_append(form: Form) -> None:
    """The size of a view is exact after each append and roll."""
    partition = MemoryPartition()
    view = PartitionViews(partition).whole(form)
    for number in range(30):
        partition.add(b"line %d" % number)
        if number % 7 == 0:
            partition.roll()
        assert len(content(partition, form)) == view.size
        assert view.measured


def test_a_size_reads_only_the_records_that_were_added() -> None:
    """After an append, asking for the size reads one batch; asking again reads nothing."""
    partition = MemoryPartition()
    views = PartitionViews(partition)
    view = views.whole(VALUES)
    for _ in range(1000):
        partition.add(b"x" * 100)
    view.measure()
    for _ in range(10):
        partition.add(b"y" * 100)
        partition.bytes_read = 0
        assert view.size == view.size == len(content(partition))
        assert partition.bytes_read < 200


def test_a_reader_at_the_end_reads_on_when_there_is_more() -> None:
    """A reader at the end, like `tail -f`, gets each record once; if there are no new records, it fetches nothing."""
    partition = MemoryPartition()
    view = PartitionViews(partition).whole(VALUES)
    reader, position, seen = ViewReader(view), 0, b""
    for number in range(20):
        partition.add(b"%d" % number)
        if number % 6 == 5:
            partition.roll()
        part = reader.read(position, 4096)
        position, seen = position + len(part), seen + part
        partition.reads = 0
        assert b"" == reader.read(position, 4096)
        assert 0 == partition.reads
    assert content(partition) == seen


def test_an_unmeasured_view_is_read_from_the_front_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lines of a long unmeasured log require one fetch, and asking for its size requires none."""
    monkeypatch.setattr(measure, "INLINE_OFFSETS", 100)
    partition = one_by_one(20_000)
    view = PartitionViews(partition).whole(VALUES)
    assert (0, False) == (view.size, view.measured)
    assert 0 == partition.bytes_read
    assert b"line 0\nline 1\n" == ViewReader(view).read(0, 14)
    assert partition.bytes_read <= 2**17


def test_measuring_goes_step_by_step_and_ends_with_the_exact_size() -> None:
    """Each call of `measure` measures about `max_bytes` of batches, until the size is exact."""
    partition = one_by_one(1000)
    view = PartitionViews(partition).whole(JSON)
    measure = view._frame.measure
    sizes = []
    while not view.measure(max_bytes=10_000):
        sizes.append(measure.frontier.position)
        assert len(sizes) < 100
    assert sizes == sorted(set(sizes))
    assert len(sizes) >= 5
    assert len(content(partition, JSON)) == view.size


def test_reading_far_into_an_unmeasured_view_measures_up_to_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read far into an unmeasured view measures the view only up to the position of the read."""
    monkeypatch.setattr(measure, "INLINE_OFFSETS", 100)
    monkeypatch.setattr(measure, "MEASURE_STEP_BYTES", 1000)
    partition = one_by_one(10_000)
    view = PartitionViews(partition).whole(VALUES)
    expected = content(partition)
    assert expected[20_000:20_100] == ViewReader(view).read(20_000, 100)
    assert not view.measured
    assert 20_000 <= view.size < 25_000


def test_many_threads_measure_and_read_one_view_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads can measure and read one view at the same time."""
    monkeypatch.setattr(measure, "MEASURE_STEP_BYTES", 2000)
    partition = one_by_one(3000)
    expected = content(partition)
    view = PartitionViews(partition).whole(VALUES)
    wrong: list[int] = []

    def measure_all() -> None:
        while not view.measure(max_bytes=5000):
            pass

    def read(start: int) -> None:
        reader = ViewReader(view)
        places = range(start, len(expected), 7919)
        wrong.extend(place for place in places if reader.read(place, 300) != expected[place : place + 300])

    threads = [threading.Thread(target=measure_all) for _ in range(3)]
    threads += [threading.Thread(target=read, args=(start,)) for start in (0, 100, 20_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong
    assert len(expected) == view.size
    assert expected == read_all(view)


def test_asking_for_a_size_does_not_wait_for_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for a size does not wait for a thread that is measuring, but returns the size known so far."""
    partition = MemoryPartition()
    partition.add(b"a")
    view = PartitionViews(partition).whole(VALUES)
    assert 2 == view.size
    partition.add(b"b")
    entered, go_on = threading.Event(), threading.Event()
    read = partition.read

    def slow(offset: Offset, **how: object) -> object:
        entered.set()
        assert go_on.wait(60)
        return read(offset, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(partition, "read", slow)
    thread = threading.Thread(target=view.measure)
    thread.start()
    assert entered.wait(60)
    assert (2, False) == (view.size, view.measured)
    go_on.set()
    thread.join()
    assert (4, True) == (view.size, view.measured)


def test_records_removed_before_they_were_measured_are_reported_when_measuring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If unmeasured records were deleted, `measure` and reads of the old view fail, but `size` still works."""
    monkeypatch.setattr(measure, "INLINE_OFFSETS", 0)
    partition = MemoryPartition()
    partition.add(b"a", b"b", b"c")
    views = PartitionViews(partition)
    old = views.whole(VALUES)
    partition.delete_records(Offset(2))
    assert (0, False) == (old.size, old.measured)
    with pytest.raises(SegmentDeletedError):
        old.measure()
    with pytest.raises(SegmentDeletedError):
        ViewReader(old).read(0, 1)
    new = views.whole(VALUES)
    assert new.measure()
    assert b"c\n" == read_all(new)
