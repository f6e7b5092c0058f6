"""Tests of the map with the newest offset of each key, in limited memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.records import columns_of_keys
from topicfs.storage.compaction.offset_map import OffsetMap
from topicfs.storage.compaction.survivors import STAYS


def test_the_newest_offset_wins():
    """Row 116: the largest offset of a key counts, whatever the order of the offsets."""
    offsets = OffsetMap(2400)
    offsets.put(b"a", 5)
    offsets.put(b"a", 3)
    offsets.put(b"b", 0)
    assert (5, 0, -1, 2) == (offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"c"), offsets.size)


def test_a_full_map_takes_known_keys_only():
    """Row 116: if nine tenths of the slots of a map are in use, the map accepts only known keys."""
    offsets = OffsetMap(240)
    assert 9 == offsets.capacity
    assert [True] * 9 + [False] == [offsets.put(b"%d" % n, n) for n in range(10)]
    assert offsets.put(b"3", 30)
    assert (30, -1, True) == (offsets.get(b"3"), offsets.get(b"9"), offsets.full)


def test_records_go_in_by_columns():
    """Records from the start offset on are added, and records without a key are skipped."""
    offsets = OffsetMap(2400)
    assert 4 == offsets.put_records(columns_of_keys([b"a", None, b"b", b"a"]), 0, 4, start_offset=1)
    assert (3, 2, 2) == (offsets.get(b"a"), offsets.get(b"b"), offsets.size)


def test_the_first_record_without_room_is_named():
    """Row 116: `put_records` stops at the first record whose new key finds no slot, and returns the record's index."""
    offsets = OffsetMap(24 * 3)
    assert 3 == offsets.put_records(columns_of_keys([b"a", b"b", b"a", b"c", b"a"]), 0, 5, start_offset=0)
    assert (2, -1, True) == (offsets.get(b"a"), offsets.get(b"c"), offsets.full)


def test_only_the_newest_records_of_known_keys_stay():
    """Only the newest record of each known key is marked to stay. A record without a key is not marked."""
    offsets = OffsetMap(2400)
    offsets.put(b"a", 3)
    assert [0, 0, STAYS, STAYS] == list(
        offsets.marks_of(columns_of_keys([b"a", None, b"b", b"a"]), end_offset=9)
    )


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**40)), max_size=80))
def test_the_map_is_a_dictionary_of_maxima(puts):
    """The map behaves like a dictionary of each key's largest offset."""
    offsets = OffsetMap(24 * 100)
    model: dict[bytes, int] = {}
    for key, offset in puts:
        assert offsets.put(key, offset)
        model[key] = max(model.get(key, -1), offset)
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.size == len(model)


def test_a_map_that_grows_forgets_nothing():
    """A map begins small, and keeps all keys and offsets as it grows."""
    offsets = OffsetMap(24 * 20_000)
    keys = [b"%d" % n for n in range(18_001)]
    assert 18_000 == offsets.put_records(columns_of_keys(keys), 0, len(keys), start_offset=0)
    assert [offsets.get(key) for key in keys] == [*range(18_000), -1]
    assert (18_000, 18_000, True) == (offsets.size, offsets.capacity, offsets.full)


def test_keys_meet_their_slots_after_the_map_grew():
    """After the map grew, a key that is added again finds its old slot, and its newest offset counts."""
    offsets = OffsetMap(24 * 20_000)
    keys = [b"%d" % (n % 3_000) for n in range(9_000)]
    assert 9_000 == offsets.put_records(columns_of_keys(keys), 0, len(keys), start_offset=0)
    assert [offsets.get(key) for key in keys[:3_000]] == [*range(6_000, 9_000)]
    assert 3_000 == offsets.size
