"""Views of ranges, measured separately if they are short, or derived from the measured view of the whole log."""

from __future__ import annotations

import pytest

from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, numbered, one_by_one, read_all
from topicfs.fusefs.forms import FORMS, VALUES, Form
from topicfs.fusefs.views import view as view_module
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.model import Offset


@pytest.fixture
def partition() -> MemoryPartition:
    """A partition of 100 batches of three records in three segments."""
    return numbered(100, rolled_after=(30, 70))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or ".values")
@pytest.mark.parametrize("whole_is_known", [False, True])
@pytest.mark.parametrize("direct", [0, 4096])
def test_a_range_is_the_rendering_of_its_records(
    partition: MemoryPartition,
    monkeypatch: pytest.MonkeyPatch,
    form: Form,
    whole_is_known: bool,
    direct: int,
) -> None:
    """A range of any length shows exactly its records, whether or not the view of the whole log is measured."""
    monkeypatch.setattr(view_module, "DIRECT_OFFSETS", direct)
    views = PartitionViews(partition)
    if whole_is_known:
        views.whole(form).measure()
    for start, end in ((0, 300), (1, 2), (1, 299), (92, 94), (93, 93), (200, 300), (300, 300), (5, 80)):
        view = views.range(form, Offset(start), Offset(end))
        expected = content(partition, form, start=start, end=end)
        assert (len(expected), True, False) == (view.size, view.measured, view.open_ended)
        assert expected == read_all(view, step=100)
        for position in range(0, len(expected), 97):
            assert expected[position : position + 30] == ViewReader(view).read(position, 30)


@pytest.mark.parametrize("whole_is_known", [False, True])
def test_an_open_range_grows_with_the_log(partition: MemoryPartition, whole_is_known: bool) -> None:
    """An open range grows with the log, even if it begins at the log's end."""
    views = PartitionViews(partition)
    if whole_is_known:
        views.whole(VALUES).measure()
    ranges = [views.range(VALUES, Offset(start), None) for start in (0, 100, 299, 300)]
    for number in range(10):
        for view in ranges:
            expected = content(partition, start=view.start_offset)
            assert (len(expected), True, True) == (view.size, view.measured, view.open_ended)
            assert expected == read_all(view)
        partition.add(b"more %d" % number)


def test_a_closed_range_does_not_grow(partition: MemoryPartition) -> None:
    """A closed range does not grow."""
    view = PartitionViews(partition).range(VALUES, Offset(290), Offset(300))
    size = view.size
    partition.add(b"more")
    assert (size, True) == (view.size, view.measured)
    assert content(partition, start=290, end=300) == read_all(view)


def test_a_range_is_clipped_at_the_log_start(partition: MemoryPartition) -> None:
    """Records below the log start are not in a range."""
    partition.delete_records(Offset(100))
    views = PartitionViews(partition)
    assert content(partition, start=100, end=150) == read_all(views.range(VALUES, Offset(0), Offset(150)))
    assert b"" == read_all(views.range(VALUES, Offset(0), Offset(50)))


def test_a_range_of_a_known_log_renders_next_to_nothing() -> None:
    """If the whole view is measured, the size of a range is computed, and its records are not rendered."""
    partition = one_by_one(50_000, b"a value that is long enough to make a few index entries %d")
    views = PartitionViews(partition)
    assert views.whole(VALUES).measure()
    partition.bytes_read = 0
    growing = views.range(VALUES, Offset(42), None)
    closed = views.range(VALUES, Offset(10_042), Offset(40_042))
    assert len(content(partition, start=42)) == growing.size
    assert len(content(partition, start=10_042, end=40_042)) == closed.size
    assert growing.measured
    assert closed.measured
    assert partition.bytes_read < 1_000_000


def test_a_short_range_of_an_unknown_log_is_measured_by_itself() -> None:
    """A short range of an unmeasured log is measured, and the log outside the range is not read."""
    partition = one_by_one(50_000, b"a value that is long enough to fill a long log %d")
    view = PartitionViews(partition).range(VALUES, Offset(25_000), Offset(25_100))
    assert len(content(partition, start=25_000, end=25_100)) == view.size
    assert view.measured
    assert partition.bytes_read < 2**20


def test_a_range_moves_into_the_whole_once_that_is_known() -> None:
    """After the whole view has been measured, an open range reads from the whole view, with unchanged positions."""
    partition = one_by_one(80_000)
    views = PartitionViews(partition)
    whole = views.whole(VALUES)
    view = views.range(VALUES, Offset(1), None)
    reader = ViewReader(view)
    expected = content(partition, start=1)
    assert expected[:1000] == reader.read(0, 1000)
    assert not view.measured
    whole.measure()
    partition.bytes_read = 0
    assert view.measure()
    assert len(expected) == view.size
    assert partition.bytes_read < 400_000
    assert expected[1000:2000] == reader.read(1000, 1000)
    assert expected[500_000:500_100] == reader.read(500_000, 100)
