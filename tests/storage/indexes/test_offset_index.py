"""Tests of the offset index: lookups, limits, truncation, and the bytes of the file."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.simulated_disk import ends_of
from topicfs.storage.disk.memory import MemoryFile
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.indexes.offset_index import SLOT, WARM_ENTRIES, OffsetIndex, may_end
from topicfs.storage.indexes.search import NO_SLOT, Key, find_floor
from topicfs.storage.model import Offset, Position

BASE = Offset(45)


def new_index(entries: int = 30) -> OffsetIndex:
    return OffsetIndex(MemoryFile(Path("/45.index")), BASE, new_bytes=entries * 8)


def filled(*entries: tuple[int, int]) -> OffsetIndex:
    index = new_index(max(30, len(entries)))
    for offset, position in entries:
        index.append(Offset(offset), Position(position))
    return index


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(-5, 3200))
def test_lookup_is_the_greatest_entry_not_above_the_target(steps, distance):
    """Row 19: a lookup finds the same entry as a search of a list. A target before the first entry gives (base, 0)."""
    offsets = [BASE + sum(steps[: count + 1]) for count in range(len(steps))]
    index = filled(*((offset, 10 * count) for count, offset in enumerate(offsets)))
    target = BASE + distance
    below = [(offset, 10 * count) for count, offset in enumerate(offsets) if offset <= target]
    assert (below[-1] if below else (BASE, 0)) == index.lookup(Offset(target))


def test_appending_too_many_fails():
    """Row 20: a full index refuses an entry."""
    index = filled(*((BASE + 1 + count, count) for count in range(30)))
    assert index.full
    with pytest.raises(ValueError, match="full"):
        index.append(Offset(1000), Position(1000))


def test_appending_out_of_order_fails():
    """Row 20: an offset not above the last one is refused."""
    index = filled((51, 0))
    with pytest.raises(ValueError, match="not above"):
        index.append(Offset(50), Position(1))
    with pytest.raises(ValueError, match="not above"):
        index.append(Offset(51), Position(1))


def test_reopening_trims_and_fills(tmp_path):
    """Row 22: trimming cuts the file to its entries, so the index is full until it is resized."""
    disk = NativeFileSystem()
    file = disk.open(tmp_path / "45.index", create=True)
    index = OffsetIndex(file, BASE, new_bytes=30 * 8)
    index.append(Offset(51), Position(0))
    index.append(Offset(52), Position(1))
    assert 240 == file.size()
    index.slots.trim()
    assert 16 == file.size()
    reopened = OffsetIndex(disk.open(tmp_path / "45.index"), BASE)
    assert [(51, 0), (52, 1)] == list(reopened)
    assert 52 == reopened.last_offset
    with pytest.raises(ValueError, match="full"):
        reopened.append(Offset(53), Position(2))
    reopened.slots.resize(30 * 8)
    reopened.append(Offset(53), Position(2))
    assert (53, 2) == reopened.lookup(Offset(60))


def test_zeros_of_an_untrimmed_file_count_as_entries():
    """Row 22: the zeros of an untrimmed file are read as entries, because the file does not store their number."""
    file = MemoryFile(Path("/45.index"))
    OffsetIndex(file, BASE, new_bytes=80).append(Offset(51), Position(9))
    reopened = OffsetIndex(file, BASE)
    assert 10 == reopened.entries
    assert reopened.full


@pytest.mark.parametrize(
    ("target", "kept"), [(57, 9), (54, 8), (53, 7), (52, 6), (47, 1), (46, 0), (45, 0), (0, 0)]
)
def test_truncation_keeps_what_is_below(target, kept):
    """Row 23: truncation keeps the entries below the offset, and appending continues after them."""
    index = filled(*((46 + count, 10 * count) for count in range(9)))
    index.truncate_to(Offset(target))
    assert kept == index.entries
    assert (45 + kept if kept else 45) == index.last_offset
    index.append(Offset(60), Position(100))
    assert (60, 100) == index.lookup(Offset(60))


def test_preallocation_rounds_down_to_whole_slots():
    """A size is rounded down to whole slots. Resizing never drops entries."""
    index = OffsetIndex(MemoryFile(Path("/0.index")), Offset(0), new_bytes=23)
    assert 2 == index.slots.capacity
    index.append(Offset(1), Position(1))
    index.slots.resize(0)
    assert [(1, 1)] == list(index)


def test_golden_bytes():
    """A slot is two big-endian int32. The golden slot has relative offset 129 and position 4146."""
    file = MemoryFile(Path("/0.index"))
    index = OffsetIndex(file, Offset(0), new_bytes=80)
    index.append(Offset(129), Position(4146))
    assert bytes.fromhex("00000081 00001032") == file.pread(8, 0)
    assert (129, 4146) == index.lookup(Offset(140))


def test_offsets_beyond_the_relative_range_are_refused():
    """An offset 2^31 or more above the base is refused."""
    index = new_index()
    with pytest.raises(ValueError, match="does not fit"):
        index.append(Offset(BASE + 2**31), Position(0))


def test_an_unused_slot_cannot_be_read():
    """A slot after the last entry raises IndexError."""
    with pytest.raises(IndexError):
        filled((50, 1)).entry(1)


def test_sanity_check_for_tools():
    """`check` refuses a size that is not a multiple of 8, and a last offset below the base."""
    filled((50, 1)).check()
    file = MemoryFile(Path("/45.index"))
    file.append(SLOT.pack(-1, 0))
    with pytest.raises(CorruptionError, match="below the base offset"):
        OffsetIndex(file, BASE).check()
    file.append(bytes(4))
    with pytest.raises(CorruptionError, match="multiple of 8"):
        OffsetIndex(file, BASE).check()


@pytest.mark.parametrize(
    ("data", "right"),
    [
        (b"", True),
        (SLOT.pack(5, 4146), True),
        (SLOT.pack(5, 9999), True),
        (SLOT.pack(5, 10_000), False),
        (SLOT.pack(5, 4146) + bytes(4), False),
        (SLOT.pack(-1, 4146), False),
        (SLOT.pack(5, -1), False),
        (SLOT.pack(5, 4146) + bytes(8), False),
        (bytes(8), False),
    ],
)
def test_the_end_of_an_index_shows_whether_it_fits_a_log(data: bytes, right: bool) -> None:
    """The end of an index shows whether the index can belong to a log.

    The index must consist of whole slots, and the last slot must be in use. The last entry must be at or above the
    base offset and inside the log.
    """
    assert right == may_end(ends_of(data, SLOT.size), 10_000)


def sorted_slots(keys: Iterable[int]) -> tuple[memoryview, Key]:
    """Return slots of 13 bytes with an 8-byte integer in the middle."""
    slot = struct.Struct(">bqi")
    return memoryview(b"".join(slot.pack(-1, key, -1) for key in keys)), Key(slot.size, 1, 8)


def test_the_warm_section_is_searched_alone():
    """If the target is in the last 8 KiB of an index, only these 8 KiB are searched. Otherwise they are skipped."""
    entries = 5000
    first_warm = entries - 1 - WARM_ENTRIES
    probes: list[int] = []
    slots, key = sorted_slots(range(entries))
    assert 4500 == find_floor(slots, key, 4500, warm_entries=WARM_ENTRIES, probes=probes)
    assert first_warm == min(probes)
    for target in (1234, first_warm):
        probes.clear()
        assert target == find_floor(slots, key, target, warm_entries=WARM_ENTRIES, probes=probes)
        assert first_warm == max(probes)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300), unique=True, max_size=50).map(sorted),
    st.integers(-1, 301) | st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 8),
)
def test_the_floor_of_any_target(keys, target, warm_entries):
    """`find_floor` returns the last key that is not above the target, for any keys and any number of warm entries."""
    floors = [slot for slot, key in enumerate(keys) if key <= target]
    assert (floors or [NO_SLOT])[-1] == find_floor(*sorted_slots(keys), target, warm_entries=warm_entries)
