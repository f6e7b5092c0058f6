"""Damaged batches: a read that needs one fails with its position and the cause, and all other reads work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, joined, numbered, read_all, reads
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.views import measure, rendering, sparse_index
from topicfs.fusefs.views import view as view_module
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset

BATCHES = 12


def values(number: int) -> bytes:
    return b"".join(b"value %d.%d\n" % (number, part) for part in range(3))


@pytest.fixture
def partition() -> MemoryPartition:
    """Twelve batches of three records, rolled after the fourth and the eighth; batch n begins at offset 3n."""
    return numbered(BATCHES, rolled_after=(3, 7))


def without(*damaged: int) -> bytes:
    """Return the text of a view that lacks the batches `damaged`."""
    return b"".join(values(number) for number in range(BATCHES) if number not in damaged)


def place_of(damaged: int) -> int:
    return sum(len(values(number)) for number in range(damaged))


@pytest.mark.parametrize("damaged", range(BATCHES))
def test_a_damaged_batch_has_no_positions(partition: MemoryPartition, damaged: int) -> None:
    """A damaged batch has no positions in a view; all bytes before and after its place can be read."""
    partition.damage(3 * damaged)
    view = PartitionViews(partition).whole(VALUES)
    assert view.measure()
    expected, place = without(damaged), place_of(damaged)
    assert len(expected) == view.size
    for position in range(1, len(expected)):
        assert expected[position : position + 1] == ViewReader(view).read(position, 1)
    fresh = ViewReader(view)
    if place:
        assert expected[:place] == ViewReader(view).read(0, place)
    else:
        with pytest.raises(CorruptionError):
            fresh.read(0, 1)
    assert expected[place:] == fresh.read(place, len(expected) - place)


@pytest.mark.parametrize("damaged", [1, 5, 10])
@pytest.mark.parametrize("measured", [False, True])
def test_a_read_across_the_place_fails_with_file_position_and_cause(
    partition: MemoryPartition, damaged: int, measured: bool
) -> None:
    """A read across a damaged batch fails with file, position and cause; reads before and after the batch work."""
    partition.damage(3 * damaged)
    segment = partition.memory_segments[damaged // 4]
    view = PartitionViews(partition).whole(VALUES)
    if measured:
        view.measure()
    handle, place = ViewReader(view), place_of(damaged)
    for _ in range(3):
        with pytest.raises(CorruptionError, match="checksum") as caught:
            handle.read(place - 5, 10)
        expected_file = Path(partition.directory) / f"{segment.base_offset:020d}.log"
        assert (expected_file, segment.positions[damaged % 4]) == (caught.value.file, caught.value.position)
    assert without(damaged)[place - 5 : place] == handle.read(place - 5, 5)
    assert without(damaged)[place + 1 : place + 5] == handle.read(place + 1, 4)


@pytest.mark.parametrize("step", [1, 5, 36, 4096])
@pytest.mark.parametrize("damaged", [0, 1, 4, 11])
def test_a_reader_that_reads_on_fails_once_at_a_damaged_batch(
    partition: MemoryPartition, damaged: int, step: int
) -> None:
    """A reader that reads on fails exactly once at a damaged batch, even if a read ends at its place."""
    partition.damage(3 * damaged)
    found = reads(PartitionViews(partition).whole(VALUES), step)
    (stop,) = [number for number, part in enumerate(found) if isinstance(part, CorruptionError)]
    before, after = joined(found[:stop]), joined(found[stop + 1 :])
    assert (place_of(damaged), without(damaged)) == (len(before), before + after)


def test_several_damaged_batches_in_a_row(partition: MemoryPartition) -> None:
    """If several batches in a row are damaged, even across segments, a reader fails only once."""
    for damaged in (2, 3, 4, 7):
        partition.damage(3 * damaged)
    view = PartitionViews(partition).whole(VALUES)
    assert view.measure()
    assert len(without(2, 3, 4, 7)) == view.size
    found = reads(view, 50)
    assert 2 == sum(isinstance(part, CorruptionError) for part in found)
    assert without(2, 3, 4, 7) == joined(found)


@pytest.mark.parametrize("at", [8, 16, 17, 23, 26, 57, 60])
def test_damage_in_the_header_costs_no_other_batch(partition: MemoryPartition, at: int) -> None:
    """Damage in any field of a batch's header has no effect on other batches."""
    partition.damage(3 * 5, at=at)
    if at in (8, 16):
        partition.broken_from.add(3 * 5)
    view = PartitionViews(partition).whole(VALUES)
    assert view.measure()
    reader, expected, place = ViewReader(view), without(5), place_of(5)
    assert len(expected) == view.size
    assert expected[:place] == reader.read(0, place)
    assert expected[place + 1 :] == reader.read(place + 1, view.size)


def test_a_break_the_log_cannot_walk_over_is_left_by_the_next_readable_offset(
    partition: MemoryPartition,
) -> None:
    """If the log cannot find the batches after a damaged place, the view continues at the next readable offset."""
    partition.broken_from |= {3 * 5, 3 * 6}
    view = PartitionViews(partition).whole(VALUES)
    assert view.measure()
    assert len(without(5, 6)) == view.size
    with pytest.raises(CorruptionError, match="no batch begins here"):
        ViewReader(view).read(place_of(5) - 1, 2)
    partition.broken_from |= {3 * 11}
    again = PartitionViews(partition).whole(VALUES)
    assert again.measure()
    assert len(without(5, 6, 11)) == again.size


def test_a_range_fails_only_by_damage_inside_it(partition: MemoryPartition) -> None:
    """A range fails only if a damaged batch is inside it."""
    partition.damage(3 * 5)
    for whole_is_known in (False, True):
        views = PartitionViews(partition)
        if whole_is_known:
            views.whole(VALUES).measure()
        before, behind = views.range(VALUES, Offset(0), Offset(15)), views.range(VALUES, Offset(18), None)
        place = place_of(5)
        assert (without(5)[:place], without(5)[place:]) == (read_all(before), read_all(behind))
        inside = views.range(VALUES, Offset(16), Offset(24))
        assert len(values(6) + values(7)) == inside.size
        handle = ViewReader(inside)
        with pytest.raises(CorruptionError):
            handle.read(0, 10)
        assert values(6) + values(7) == handle.read(0, 1000)


def test_damage_that_came_after_measuring_shifts_nothing(
    partition: MemoryPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a batch is damaged after measuring, positions do not change.

    Reads fail from the damaged batch up to the next position in the index.
    """
    monkeypatch.setattr(sparse_index, "ENTRY_INTERVAL", 50)
    view = PartitionViews(partition).whole(VALUES)
    assert view.measure()
    whole = content(partition)
    partition.damage(3 * 5)
    assert len(whole) == view.size
    readable = []
    for position in range(len(whole)):
        try:
            assert whole[position : position + 1] == ViewReader(view).read(position, 1)
            readable.append(position)
        except CorruptionError:
            assert place_of(5) <= position
    failing = sorted(set(range(len(whole))) - set(readable))
    assert failing == list(range(failing[0], failing[-1] + 1))
    assert place_of(5) == failing[0]
    assert place_of(6) <= failing[-1] + 1 <= place_of(8)


def test_a_damaged_end_does_not_stop_growth(partition: MemoryPartition) -> None:
    """Records that are appended after a damaged batch are shown."""
    view = PartitionViews(partition).whole(VALUES)
    assert len(without()) == view.size
    partition.add(b"bad")
    partition.damage(partition.log_end_offset - 1)
    assert (len(without()), True) == (view.size, view.measured)
    partition.add(b"good")
    assert (len(without()) + 5, True) == (view.size, view.measured)
    assert b"good\n" == ViewReader(view).read(len(without()), 100)


def test_the_front_can_be_removed_up_to_and_inside_damage(partition: MemoryPartition) -> None:
    """The log start can move to an offset before, in and after a damaged batch."""
    partition.damage(3 * 5)
    views = PartitionViews(partition)
    assert views.whole(VALUES).measure()
    for start in (14, 15, 16, 17, 18):
        partition.delete_records(Offset(start))
        view = views.whole(VALUES)
        shown = content_behind(start)
        assert len(shown) == view.size
        assert shown[-40:] == ViewReader(view).read(len(shown) - 40, 100)


def content_behind(start: int) -> bytes:
    lines = [b"value %d.%d\n" % divmod(offset, 3) for offset in range(start, 3 * BATCHES)]
    return b"".join(line for offset, line in enumerate(lines, start) if offset // 3 != 5)


@pytest.fixture(params=[False, True], ids=["", "small steps"], autouse=True)
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the usual limits, and with small limits that cause a fetch for each batch."""
    if request.param:
        monkeypatch.setattr(sparse_index, "ENTRY_INTERVAL", 64)
        monkeypatch.setattr(measure, "MEASURE_STEP_BYTES", 150)
        monkeypatch.setattr(rendering, "TEXT_WINDOW_BYTES", 64)
        monkeypatch.setattr(rendering, "FIRST_FETCH_BYTES", 150)
        monkeypatch.setattr(view_module, "DIRECT_OFFSETS", 3)
