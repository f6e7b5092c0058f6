"""The sparse index of a view: distances of entries, searches by position and offset, trimming and joining."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topicfs.fusefs.views.sparse_index import (
    DECODED_SHARE,
    ENTRY_INTERVAL,
    MAX_BATCH_INTERVAL,
    Entry,
    SparseIndex,
)
from topicfs.storage.model import Offset


def extend(index: SparseIndex, rendered: list[int], *, batch_size: int = 100, records: int = 10) -> None:
    """Add batches whose records render to the numbers of bytes in `rendered`."""
    first = index.frontier.offset
    count = len(rendered)
    index.extend(
        rendered,
        [1000 + batch_size * number for number in range(count)],
        [first + records * number for number in range(count)],
        end_position=1000 + batch_size * count,
        next_offset=Offset(first + records * count),
    )


def entries(index: SparseIndex) -> list[Entry]:
    found, offset = [index.start], index.start.offset
    while (entry := index.after(Offset(offset + 1))) != index.frontier:
        found.append(entry)
        offset = entry.offset
    return found


def test_entries_stand_at_the_first_batch_after_each_interval() -> None:
    """The index has an entry at the first batch after each ENTRY_INTERVAL."""
    index = SparseIndex(Offset(100))
    extend(index, [40_000] * 7)
    assert [(0, 100), (80_000, 120), (160_000, 140), (240_000, 160)] == entries(index)
    assert (280_000, 170) == index.frontier


@given(
    st.lists(st.lists(st.integers(0, 100_000), min_size=1, max_size=30), min_size=1, max_size=10),
    st.sampled_from([100, MAX_BATCH_INTERVAL // 2]),
)
def test_entries_do_not_depend_on_how_batches_are_grouped(groups: list[list[int]], batch_size: int) -> None:
    """The entries do not depend on how many batches are added in one call."""
    together, apart, grouped = (SparseIndex(Offset(5)) for _ in range(3))
    every = [size for group in groups for size in group]
    extend(together, every, batch_size=batch_size)
    for size in every:
        extend(apart, [size], batch_size=batch_size)
    for group in groups:
        extend(grouped, group, batch_size=batch_size)
    assert entries(together) == entries(apart) == entries(grouped)
    assert together.frontier == apart.frontier == grouped.frontier


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=100), st.data())
def test_every_place_is_found_within_an_interval(sizes: list[int], data: st.DataObject) -> None:
    """The entry that is found for a position is at most one interval and one batch before the position."""
    index = SparseIndex(Offset(0))
    extend(index, sizes)
    position = data.draw(st.integers(0, sum(sizes)))
    entry = index.at(position)
    assert entry.position <= position <= entry.position + ENTRY_INTERVAL + max(sizes)
    assert sum(sizes[: entry.offset // 10]) == entry.position
    offset = Offset(data.draw(st.integers(0, len(sizes) * 10)))
    assert index.before(offset).offset <= offset <= index.after(offset).offset


def test_batches_that_render_to_little_get_entries_by_their_own_size() -> None:
    """If batches render to few bytes, there is an entry every MAX_BATCH_INTERVAL bytes of batches."""
    index = SparseIndex(Offset(0))
    extend(index, [1] * 40, batch_size=MAX_BATCH_INTERVAL // 4)
    extend(index, [1] * 2, batch_size=MAX_BATCH_INTERVAL // 4)
    assert [(4 * number, 40 * number) for number in range(11)] == entries(index)


def test_trimming_forgets_what_is_below_and_moves_nothing() -> None:
    """Trimming removes the entries below a place, and keeps the positions of the remaining entries."""
    index = SparseIndex(Offset(0))
    extend(index, [ENTRY_INTERVAL] * 10)
    index.trim(Entry(0, Offset(0)))
    assert 10 == len(index)
    index.trim(Entry(2 * ENTRY_INTERVAL, Offset(20)))
    assert (2 * ENTRY_INTERVAL, 20) == index.start
    index.trim(Entry(2 * ENTRY_INTERVAL + 77, Offset(25)))
    assert [(2 * ENTRY_INTERVAL + 77, 25), (3 * ENTRY_INTERVAL, 30)] == entries(index)[:2]
    index.trim(index.frontier)
    assert (index.frontier, 1) == (index.start, len(index))
    extend(index, [5])
    assert (10 * ENTRY_INTERVAL + 5, 110) == index.frontier


def test_a_segment_taken_out_is_put_back_elsewhere() -> None:
    """An excerpt counts its positions from the beginning of its segment, and can be appended to another index."""
    index = SparseIndex(Offset(0))
    extend(index, [50_000] * 3)
    index.begin_segment(Offset(32))
    extend(index, [50_000] * 5)
    end = index.frontier
    index.begin_segment(end.offset)
    extend(index, [7])
    known = index.excerpt(Offset(32), end)
    assert (0, 32, 250_000, 82) == (known.positions[0], known.offsets[0], known.size, known.end_offset)
    other = SparseIndex(Offset(32))
    other.append(known)
    assert [(entry.position + 150_000, entry.offset) for entry in entries(other)] == entries(index)[2:5]
    assert (250_000, 82) == other.frontier


def test_a_gap_moves_the_offset_alone() -> None:
    """A gap moves the end offset of the index forward, but not the end position."""
    index = SparseIndex(Offset(0))
    extend(index, [10])
    index.skip(Offset(50))
    index.skip(Offset(20))
    assert (10, 50) == index.frontier


def test_decompressed_bytes_count_for_the_distance_of_entries() -> None:
    """For the distance of entries, DECODED_SHARE decompressed bytes count as one byte of a batch."""
    index = SparseIndex(Offset(0))
    for number in range(6):
        index.extend(
            [1],
            [100 * number],
            [number],
            end_position=100 * (number + 1),
            next_offset=Offset(number + 1),
            decoded_bytes=DECODED_SHARE * MAX_BATCH_INTERVAL // 2,
        )
    assert [(0, 0), (2, 2), (4, 4)] == entries(index)
