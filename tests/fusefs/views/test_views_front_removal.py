"""Records deleted at the front of a log: open readers keep their positions, and new views begin at position 0."""

from __future__ import annotations

import pytest

from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, numbered, one_by_one, read_all
from topicfs.fusefs.forms import FORMS, VALUES, Form
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews, View
from topicfs.storage.errors import SegmentDeletedError
from topicfs.storage.model import Offset


@pytest.fixture
def partition() -> MemoryPartition:
    """A partition of four segments of ten batches of three records, offsets 0 to 119."""
    return numbered(40, rolled_after=(9, 19, 29))


def remove(partition: MemoryPartition, start: int) -> None:
    """Move the log start and delete the segments below it, as retention does."""
    partition.delete_records(Offset(start))
    partition.delete_oldest_segments(start // 30)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or ".values")
@pytest.mark.parametrize("start", [1, 4, 30, 47, 119, 120])
def test_an_old_view_keeps_its_positions_and_a_new_one_counts_afresh(
    partition: MemoryPartition, form: Form, start: int
) -> None:
    """In an old view, deleted bytes cannot be read and other bytes keep their positions; a new view begins at 0."""
    views = PartitionViews(partition)
    old = views.whole(form)
    before = content(partition, form)
    assert len(before) == old.size
    remove(partition, start)
    removed = len(before) - len(content(partition, form, start=start))
    new = views.whole(form)
    assert new is not old
    assert (start, len(before) - removed) == (new.start_offset, new.size)
    assert before[removed:] == read_all(new)
    assert len(before) == old.size
    for position in {0, removed // 2, removed - 1}:
        with pytest.raises(SegmentDeletedError):
            ViewReader(old).read(position, 10)
    for position in range(removed, len(before), 37):
        assert before[position : position + 50] == ViewReader(old).read(position, 50)


def test_an_open_reader_is_refused_removed_bytes_it_had_rendered(partition: MemoryPartition) -> None:
    """Reading deleted bytes fails even if the reader still has them in memory; later bytes can be read."""
    view = PartitionViews(partition).whole(VALUES)
    view.measure()
    before = content(partition)
    reader = ViewReader(view)
    assert before[:100] == reader.read(0, 100)
    remove(partition, 60)
    with pytest.raises(SegmentDeletedError):
        reader.read(100, 100)
    removed = len(before) - len(content(partition))
    assert before[removed : removed + 100] == reader.read(removed, 100)


def test_a_reader_at_the_end_neither_repeats_nor_loses_a_line(partition: MemoryPartition) -> None:
    """A reader at the end, like `tail -f`, gets each line once while retention deletes lines that it has read."""
    views = PartitionViews(partition)
    view = views.whole(VALUES)
    reader, seen = ViewReader(view), b""
    expected = content(partition)
    for number in range(20):
        while part := reader.read(len(seen), 1000):
            seen += part
        assert expected == seen
        assert len(expected) == view.size
        partition.roll()
        partition.add(b"more %d" % number)
        expected += b"more %d\n" % number
        partition.delete_oldest_segments(len(partition.memory_segments) - 1)
    assert expected == seen + bytes(reader.read(len(seen), 1000))


def test_the_same_view_is_given_until_data_is_removed(partition: MemoryPartition) -> None:
    """Appends and rolls do not create a new view of a log; deleting records does."""
    views = PartitionViews(partition)
    view = views.whole(VALUES)
    partition.add(b"more")
    partition.roll()
    assert view is views.whole(VALUES)
    partition.delete_records(Offset(1))
    newer = views.whole(VALUES)
    assert newer is not view
    assert newer is views.whole(VALUES)


def test_a_new_generation_measures_nothing_again() -> None:
    """After records were deleted from the front, the new view uses the sizes that are already known.

    It renders only a few records to find its start.
    """
    partition = one_by_one(20_000, b"a value that is long enough to make a few index entries %d")
    views = PartitionViews(partition)
    assert views.whole(VALUES).measure()
    partition.delete_records(Offset(10_001))
    partition.bytes_read = 0
    view = views.whole(VALUES)
    assert view.measured
    assert len(content(partition)) == view.size
    assert partition.bytes_read < 400_000


def test_all_records_removed_leaves_an_empty_new_view(partition: MemoryPartition) -> None:
    """If all records are deleted, the old view keeps its size, and both views show records appended later."""
    views = PartitionViews(partition)
    old, size = views.whole(VALUES), len(content(partition))
    assert size == old.size
    remove(partition, 120)
    new = views.whole(VALUES)
    assert (0, True) == (new.size, new.measured)
    assert b"" == ViewReader(old).read(size, 10)
    partition.add(b"x")
    assert b"x\n" == ViewReader(new).read(0, 10) == ViewReader(old).read(size, 10)


def test_ranges_lose_their_front_as_the_whole_does(partition: MemoryPartition) -> None:
    """After a deletion, a range keeps its positions, and its deleted bytes cannot be read."""
    views = PartitionViews(partition)
    opened: list[tuple[View, bytes, int]] = []
    for whole_is_known in (False, True):
        if whole_is_known:
            views.whole(VALUES).measure()
        for start, end in ((5, 20), (10, 100), (50, None)):
            view = views.range(VALUES, Offset(start), None if end is None else Offset(end))
            expected = content(partition, start=start, end=end)
            assert len(expected) == view.size
            opened.append((view, expected, len(content(partition, start=start, end=min(60, end or 60)))))
    remove(partition, 60)
    for view, expected, removed in opened:
        assert len(expected) == view.size
        with pytest.raises(SegmentDeletedError):
            ViewReader(view).read(removed - 1, 5)
        assert expected[removed : removed + 100] == ViewReader(view).read(removed, 100)
        assert b"" == ViewReader(view).read(len(expected), 100)


def test_deleting_a_marker_at_the_front_removes_no_byte() -> None:
    """Deleting a marker at the front removes no byte of a view, so readers can still read from position 0."""
    partition = MemoryPartition()
    partition.add_marker()
    partition.add(b"a")
    view = PartitionViews(partition).whole(VALUES)
    reader = ViewReader(view)
    assert 2 == view.size
    partition.delete_records(Offset(1))
    assert b"a\n" == reader.read(0, 10)
