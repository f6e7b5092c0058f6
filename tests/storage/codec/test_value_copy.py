"""Tests of copying values straight from batches: the result is None, or equals the text of the decoded records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.codec_variants import REFUSED, VARIANTS, batch_of
from tests.doubles.records import marker
from tests.storage.codec.strategies import SMALL, record_lists
from topicfs.storage.codec.batch import scan, seal
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.codec.value_copy import begin_text, copy_inflated, copy_values, find_value
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Header, Record

ALL = (0, 2**62)
PLAIN_TIMES = st.integers(1_700_000_000_000, 1_700_000_000_000 + 2**27 - 1)


def joined(data, bounds=ALL, *, begun=b"", room=0):
    """Return `begun` and the copied values as text, or None if `copy_values` has no result."""
    text = begin_text(begun, room)
    end = copy_values(data, text, len(begun), start_offset=bounds[0], end_offset=bounds[1])
    return None if end < 0 else bytes(text[:end])


def by_records(data, bounds=ALL):
    """Return the text that `joined` should return, computed from the records that `decode` returns."""
    records = (record for columns in decode(data) for record in columns)
    return b"".join((r.value or b"") + b"\n" for r in records if bounds[0] <= r.offset < bounds[1])


@st.composite
def plain_batches(draw):
    """One to four adjacent batches of records without headers."""
    data, offset = bytearray(), 0
    for _ in range(draw(st.integers(1, 4))):
        values = draw(
            st.lists(st.tuples(st.none() | SMALL, st.none() | SMALL, PLAIN_TIMES), min_size=1, max_size=5)
        )
        records = []
        for key, value, timestamp in values:
            records.append(Record(offset, timestamp, key, value))
            offset += draw(st.integers(1, 300))
        data += encode(records)
    return bytes(data), offset


@given(plain_batches(), st.data())
def test_plain_batches_always_have_a_result(batches, data):
    """For plain batches there is always a result.

    This holds for any keys, values, offsets, bounds, buffer size, and text that is already in the buffer.
    """
    content, end = batches
    bounds = data.draw(st.tuples(st.integers(0, end), st.integers(0, end)))
    begun, room = data.draw(SMALL), data.draw(st.integers(0, 5000))

    assert begun + by_records(content, bounds) == joined(content, bounds, begun=begun, room=room)


@given(plain_batches(), st.data())
def test_damage_gives_no_result_or_that_of_decoding(batches, data):
    """With random damage and a valid checksum the result is None or equals the text of decoded records."""
    content = bytearray(batches[0])
    size = 12 + int.from_bytes(content[8:12], "big")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(17, size - 1))] = data.draw(st.integers(0, 255))
    seal(content, 0, size)

    answer = joined(bytes(content))
    if answer is not None:
        assert answer == by_records(content)


@pytest.mark.parametrize(
    "other",
    [
        encode([Record(0, 1, None, b"v", (Header(b"h", b"x"),))]),
        encode([Record(0, 1, None, b"v")], BatchStamp(codec=Codec.GZIP)),
        encode([Record(0, 0, None, b"v"), Record(1, 2**40, None, b"w")]),
    ],
    ids=["headers", "compressed", "a time far from the first"],
)
def test_a_batch_that_is_not_plain_has_no_result(other):
    """If one batch among plain batches is not plain, there is no result."""
    plain = encode([Record(0, 1, None, b"v")])

    assert joined(plain + other + plain) is None


def test_a_wrong_checksum_has_no_result():
    """If a checksum is wrong, there is no result, and `decode` reports the position."""
    batch = encode([Record(0, 1, None, b"value")])
    data = bytearray(batch * 4)
    data[3 * len(batch) - 1] ^= 1

    assert joined(data) is None
    with pytest.raises(CorruptBatchError) as caught:
        decode(data)
    assert caught.value.position == 2 * len(batch)


def test_markers_show_nothing():
    """Markers and emptied batches add no values."""
    record = encode([Record(0, 1, None, b"v")])
    emptied = encode([], base_offset=1, last_offset=5)

    assert b"v\nv\n" == joined(record + emptied + marker() + record)


def test_the_buffer_holds_the_given_text():
    """`begin_text` makes the buffer at least as large as the given text."""
    assert b"abc" == begin_text(b"abc", 0)
    assert b"bc" == begin_text(memoryview(b"abc")[1:], 10)[:2]


def inflated(batch, bounds=ALL, *, begun=b"", limit=MAX_CONTENT_BYTES):
    """Return `begun` followed by the values of inflated batches, and the inflated size.

    The first value is None if the copy has no result.
    """
    text, batches = begin_text(begun, 0), scan(batch)
    copied, end, taken = copy_inflated(
        batch,
        batches.rows,
        text,
        len(begun),
        size=2**30,
        start_offset=bounds[0],
        end_offset=bounds[1],
        max_content_bytes=limit,
    )
    return (None if copied < len(batches) else bytes(text[:end])), taken


@pytest.mark.parametrize("codec", Codec)
def test_compressed_values_are_joined_as_they_are_inflated(codec):
    """Values of each codec are copied from the inflated content, within any bounds."""
    records = [Record(n, 5, None, b"value %d" % n) for n in range(9)]
    batch = encode(records, BatchStamp(codec=codec))
    for bounds in (ALL, (0, 0), (3, 5), (8, 100)):
        text, taken = inflated(batch, bounds, begun=b"before ")
        assert b"before " + by_records(batch, bounds) == text
        assert len(encode(records)) - 61 == taken


@given(record_lists(), st.sampled_from([Codec.NONE, Codec.NONE, *Codec]), st.integers(0, 1))
def test_a_result_equals_that_of_decoding(records, codec, timestamp_type):
    """With any headers, times, compression and timestamp type, a result equals the text of decoded records."""
    batch = bytes(encode(records, BatchStamp(codec=codec, timestamp_type=timestamp_type)))
    text = by_records(batch)

    assert joined(batch) in {None, text}
    assert inflated(batch)[0] in {None, text}


@given(st.sampled_from(Codec), st.data())
def test_damage_in_a_compressed_batch_gives_no_result_or_that_of_decoding(codec, data):
    """With random damage in a compressed batch the result is None or equals the text of decoded records."""
    batch = encode([Record(n, 5, b"key", b"value %d" % n) for n in range(9)], BatchStamp(codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(17, len(batch) - 1))] = data.draw(st.integers(0, 255))
    seal(batch, 0, len(batch))
    if len(scan(batch)) == 0:
        return
    answer, _taken = inflated(bytes(batch))
    if answer is not None:
        assert answer == by_records(bytes(batch))


def test_inflated_content_has_a_limit():
    """Content larger than the limit gives no result. Content of exactly the limit gives a result."""
    batch = encode([Record(0, 1, None, bytes(1000))], BatchStamp(codec=Codec.ZSTD))
    size = len(encode([Record(0, 1, None, bytes(1000))])) - 61

    assert (None, 0) == inflated(batch, limit=size - 1)
    assert (bytes(1000) + b"\n", size) == inflated(batch, limit=size)


def test_an_inflated_batch_with_headers_has_no_result():
    """An inflated batch whose records have headers gives no result."""
    record = Record(0, 1, None, b"v", (Header(b"h", b"x"),))

    assert (None, 0) == inflated(encode([record], BatchStamp(codec=Codec.LZ4)))


@given(record_lists(), st.sampled_from(Codec), st.integers(0, 1), st.data())
def test_a_found_value_equals_that_of_decoding(records, codec, timestamp_type, data):
    """`find_value` returns None, or the value and time that decoding gives. For compressed batches it returns None."""
    batch = bytes(encode(records, BatchStamp(codec=codec, timestamp_type=timestamp_type)))
    decoded = {r.offset: (r.value or b"", r.timestamp) for columns in decode(batch) for r in columns}
    for offset in (*decoded, data.draw(st.integers(-5, 400))):
        found = find_value(batch, offset)
        assert found in {None, decoded.get(offset)}
        assert found is None or codec is Codec.NONE


def test_a_value_is_found_in_a_plain_batch():
    """`find_value` finds each record of a plain batch, even with the broker's timestamps."""
    records = [Record(n, 1000 + n * n, b"key", b"value %d" % n) for n in range(9)]
    plain, stamped = (bytes(encode(records, BatchStamp(timestamp_type=kind))) for kind in (0, 1))

    assert [(r.value, r.timestamp) for r in records] == [find_value(plain, n) for n in range(9)]
    assert [(r.value, 1064) for r in records] == [find_value(stamped, n) for n in range(9)]
    assert [None, None] == [find_value(plain, 9), find_value(plain, -1)]


def test_no_value_is_found_in_a_batch_that_is_not_plain_and_sound():
    """`find_value` returns None for a wrong checksum, a marker, two batches, and a repeated offset."""
    batch = encode([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")])
    twice = bytearray(batch)
    twice[batch.index(b"\x00\x02\x01\x02b") + 1] = 0
    seal(twice, 0, len(twice))
    damaged = bytearray(batch)
    damaged[-1] ^= 1

    assert (b"b", 1) == find_value(batch, 1)
    assert [None] * 4 == [find_value(data, 0) for data in (damaged, marker(), batch + batch, twice)]


@pytest.mark.parametrize(("codec", "name"), VARIANTS)
def test_compressed_content_of_any_form_gives_its_values_or_no_result(codec, name):
    """Readers that release the GIL refuse the same compressed bytes as other readers.

    If a reader returns values, they equal the values that other readers return.
    """
    batch = bytes(batch_of(codec, VARIANTS[codec, name]))
    if name in REFUSED[codec]:
        assert joined(batch) is None
    else:
        assert joined(batch) in {None, by_records(batch)}
