"""Tests of marking records that stay, of grouping batches into runs, and of copying the records that are kept.

All results are compared with those of plain loops.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topicfs.storage.codec.batch_writer import encode_batches
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.compaction.offset_map import OffsetMap
from topicfs.storage.compaction.survivors import (
    BEYOND_MAP,
    NULL_VALUE,
    STAYS,
    BatchRunKind,
    count_staying,
    drop_tombstones,
    end_of_filtered,
    end_of_nontransactional,
    filter_batches,
    kept_records,
    next_run,
)
from topicfs.storage.model import Header, Offset, Record, Timestamp, TimestampType

KEYS = st.sampled_from([None, b"a", b"b", b"c"])
VALUES = st.sampled_from([None, b"", b"v"])
BATCHES = st.lists(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), min_size=1, max_size=8)


def log_of(batches, **stamp):
    """Return the columns of adjacent batches. The records are (key, value) pairs, and their offsets begin at 0."""
    data, offset = bytearray(), 0
    for pairs in batches:
        found = [
            Record(Offset(offset + n), Timestamp(offset), key, value, (Header(b"h", key),))
            for n, (key, value) in enumerate(pairs)
        ]
        data += encode(found, BatchStamp(**stamp))
        offset += len(pairs)
    return decode(data, control=True)[0]


def judged(columns, end_offset):
    """Return the marks computed with an offset map, and the marks computed with a dictionary.

    The map covers the offsets below `end_offset`.
    """
    newest, model = OffsetMap(2400), {}
    for record in columns:
        if record.key is not None and record.offset < end_offset:
            newest.put(record.key, record.offset)
            model[record.key] = record.offset
    expected = []
    for record in columns:
        mark = NULL_VALUE if record.value is None else 0
        if record.offset >= end_offset:
            mark |= STAYS | BEYOND_MAP
        elif record.key is not None and model[record.key] == record.offset:
            mark |= STAYS
        expected.append(mark)
    return newest.marks_of(columns, end_offset=end_offset), expected


@given(BATCHES, st.integers(0, 20))
def test_marks_are_those_of_a_dictionary(batches, end_offset):
    """The newest record of each key stays, as do all records that the map does not cover. Null values are marked."""
    marks, expected = judged(log_of(batches), end_offset)
    assert list(marks) == expected


@given(BATCHES, st.integers(0, 20), st.integers(-1, 20))
def test_runs_cover_every_batch_once(batches, end_offset, keep_end_offset):
    """The runs cover each batch once. There are three kinds of runs.

    In a copied run all records stay, and no value is null. In a dropped run no record stays, and no batch ends at
    `keep_end_offset`. A single run is one batch of any other kind.
    """
    columns = log_of(batches)
    marks, expected = judged(columns, end_offset)
    first = start = 0
    while first < len(columns.batches):
        kind, stop = next_run(columns, marks, first, keep_end_offset=keep_end_offset)
        for number in range(first, stop):
            header = columns.batches[number]
            mine = expected[start : header.record_end]
            start = header.record_end
            copied = all(mark & STAYS and not mark & NULL_VALUE for mark in mine)
            dropped = not any(mark & STAYS for mark in mine) and header.end_offset != keep_end_offset
            assert kind is (
                BatchRunKind.COPIED if copied else BatchRunKind.DROPPED if dropped else BatchRunKind.SINGLE
            )
        assert kind is not BatchRunKind.SINGLE or stop == first + 1
        first = stop
    assert start == len(columns)


@given(BATCHES, st.data())
def test_kept_records_are_whole(batches, data):
    """Kept records have their original key, value, headers, offset and time, in order."""
    columns = log_of(batches)
    marks = bytearray(
        data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=len(columns), max_size=len(columns)))
    )
    first = data.draw(st.integers(0, len(columns)))
    last = data.draw(st.integers(first, len(columns)))
    expected = [columns.record(n) for n in range(first, last) if marks[n] & STAYS]
    assert list(kept_records(columns, marks, first, last)) == expected
    assert count_staying(marks, first, last) == len(expected)


def test_batches_of_producers_and_transactions_are_looked_at():
    """A batch with a producer's sequence is never in a dropped run. A transactional batch is never in a copied run."""
    gone = bytearray(1)
    of_producer = log_of([[(b"a", b"1")]], producer_id=7, producer_epoch=0, base_sequence=0)
    assert next_run(of_producer, gone, 0, keep_end_offset=-1).kind is BatchRunKind.SINGLE
    assert next_run(of_producer, bytearray([STAYS]), 0, keep_end_offset=-1).kind is BatchRunKind.COPIED
    tied = log_of([[(b"a", b"1")]], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert next_run(tied, bytearray([STAYS]), 0, keep_end_offset=-1).kind is BatchRunKind.SINGLE
    assert [1, 0] == [end_of_nontransactional(columns, 0) for columns in (of_producer, tied)]


def test_a_batch_with_a_horizon_is_looked_at():
    """A batch with a delete horizon is handled alone, because its tombstones may be due."""
    columns = log_of([[(b"a", b"1")]], delete_horizon_ms=Timestamp(5))
    assert next_run(columns, bytearray([STAYS]), 0, keep_end_offset=-1).kind is BatchRunKind.SINGLE


def test_due_tombstones_stay_no_longer():
    """Due tombstones are dropped. Tombstones that the map does not cover stay, so that a later pass decides."""
    marks = bytearray([STAYS, STAYS | NULL_VALUE, STAYS | NULL_VALUE | BEYOND_MAP, NULL_VALUE])
    drop_tombstones(marks, 0, 4)
    assert [STAYS, NULL_VALUE, STAYS | NULL_VALUE | BEYOND_MAP, NULL_VALUE] == list(marks)


def filtered(marks):
    """Return whether a batch with these marks loses some records, keeps others, and keeps no tombstone."""
    kept = [mark for mark in marks if mark & STAYS]
    return 0 < len(kept) < len(marks) and not any(mark & NULL_VALUE for mark in kept)


@given(BATCHES, st.integers(0, 20), st.data())
def test_batches_are_filtered_while_each_keeps_a_part(batches, end_offset, data):
    """`end_of_filtered` stops at the first batch that keeps all of its records, none of them, or a tombstone."""
    columns = log_of(batches)
    marks, expected = judged(columns, end_offset)
    ends = [header.record_end for header in columns.batches]
    parts = [expected[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    first = data.draw(st.integers(0, len(parts) - 1))
    stop = end_of_filtered(columns, marks, first)
    assert all(map(filtered, parts[first:stop]))
    assert stop == len(parts) or not filtered(parts[stop])


STAMPS = st.sampled_from(
    [
        BatchStamp(),
        BatchStamp(leader_epoch=7, producer_id=5, producer_epoch=3, base_sequence=2**31 - 1),
        BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME),
    ]
)


@given(st.lists(st.tuples(st.integers(1, 6), STAMPS), min_size=1, max_size=6), st.data())
def test_filtered_batches_are_written_as_one_by_one(shapes, data):
    """A filtered batch keeps its offset range and its stamp.

    The largest timestamp of a filtered batch is computed again, unless the broker set the time.
    """
    written, expected, marks, offset = bytearray(), bytearray(), bytearray(), 9
    for count, stamp in shapes:
        last = offset + count - 1
        by_broker = stamp.timestamp_type is TimestampType.LOG_APPEND_TIME
        found = [
            Record(
                Offset(n), Timestamp(50 if by_broker else n * 7 % 5), b"k", b"v" * n, (Header(b"h", None),)
            )
            for n in range(offset, offset + count)
        ]
        mine = data.draw(st.lists(st.sampled_from([0, STAYS]), min_size=count, max_size=count).filter(any))
        kept = [record for record, mark in zip(found, mine, strict=True) if mark]
        largest = 50 if by_broker else None
        bounds = {"base_offset": offset, "last_offset": last + 1}
        written += encode(found, stamp, **bounds, max_timestamp=largest)
        expected += encode(kept, stamp, **bounds, max_timestamp=largest)
        marks += bytes(mine)
        offset = last + 2
    columns = decode(written)[0]
    first = data.draw(st.integers(0, len(shapes) - 1))
    start, skipped = 0, bytearray()
    for number in range(first):
        header = columns.batches[number]
        skipped += encode_batches(filter_batches(columns, marks, number, number + 1))
        start = header.record_end
    rest = filter_batches(columns, marks, first, len(shapes))
    assert skipped + encode_batches(rest) == expected
    assert len(rest) == count_staying(marks, start, len(columns))


def test_only_plain_uncompressed_batches_are_filtered():
    """Transactional and compressed batches, and batches with a horizon, are not filtered in a run."""
    pairs, marks = [[(b"a", b"1"), (b"b", b"2")]], bytearray([STAYS, 0])
    assert 1 == end_of_filtered(log_of(pairs), marks, 0)
    assert 1 == end_of_filtered(log_of(pairs, producer_id=7, producer_epoch=0, base_sequence=0), marks, 0)
    for stamp in ({"codec": Codec.GZIP}, {"transactional": True}, {"delete_horizon_ms": Timestamp(5)}):
        assert 0 == end_of_filtered(log_of(pairs, **stamp), marks, 0)
