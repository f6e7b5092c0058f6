"""Tests of aborted transactions: which batches are hidden from a reader with read_committed."""

from __future__ import annotations

import struct

from tests.doubles.records import marker
from topicfs.storage.codec.aborted_filter import hide_aborted, still_aborted
from topicfs.storage.codec.batch import scan, seal
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.model import AbortedTransaction, Offset, ProducerId, Record, Timestamp


def data(offset, *, pid=-1, txn=True, codec=0):
    stamp = BatchStamp(producer_id=ProducerId(pid), transactional=txn and pid >= 0, codec=codec)
    return encode([Record(Offset(offset), Timestamp(0), None, b"v")], stamp)


def abort(offset, *, pid):
    return marker(offset, pid=pid, commit=False)


def aborted(*pairs):
    return [AbortedTransaction(ProducerId(pid), Offset(first)) for pid, first in pairs]


def shown(log, *pairs, **options):
    return [r.offset for columns in decode(log, aborted=aborted(*pairs), **options) for r in columns]


def test_aborted_data_is_hidden_from_its_first_offset_to_its_marker():
    """The records of an aborted transaction are hidden, from its first offset to its marker.

    Records of the same producer before the first offset and after the marker are shown.
    """
    log = data(0, pid=1) + marker(1, pid=1) + data(2, pid=1) + abort(3, pid=1) + data(4, pid=1)
    assert [0, 4] == shown(log, (1, 2))
    assert [0, 2, 4] == shown(log)


def test_other_records_within_an_aborted_transaction_are_shown():
    """Records inside an aborted transaction are shown if they belong to other producers or to no transaction."""
    log = data(0, pid=1) + data(1) + data(2, pid=2) + data(3, pid=1, txn=False) + abort(4, pid=1)
    assert [1, 2, 3] == shown(log, (1, 0))


def test_reading_may_begin_inside_an_aborted_transaction():
    """Records are hidden although the aborted transaction began before the data that was read."""
    assert [9] == shown(data(7, pid=1) + abort(8, pid=1) + data(9, pid=1), (1, 2))


def test_two_aborted_transactions_of_one_producer():
    """Each of two aborted transactions of a producer ends at its own marker."""
    log = b"".join([data(0, pid=1), abort(1, pid=1), data(2, pid=1), abort(3, pid=1), data(4, pid=1)])
    assert [4] == shown(log, (1, 0), (1, 2))


def test_compressed_batches_are_hidden_too():
    """A compressed batch of an aborted transaction is hidden, and compressed batches around it are shown."""
    log = data(0, codec=4) + data(1, pid=1, codec=4) + abort(2, pid=1) + data(3, pid=1, codec=1)
    assert [0, 3] == shown(log, (1, 1))


def test_markers_show_only_where_asked_for():
    """`control=True` shows the markers, but still hides the aborted records."""
    log = data(0, pid=1) + abort(1, pid=1)
    assert [1] == shown(log, (1, 0), control=True)


def test_headers_tell_what_is_hidden():
    """`hide_aborted` marks headers of hidden batches, for readers that count records without decoding them."""
    batches = scan(data(0, pid=1) + abort(1, pid=1) + data(2, pid=1))
    hide_aborted(batches, aborted((1, 0)))
    assert [True, False, False] == [batch.is_hidden for batch in batches]


def test_transactions_that_continue_after_a_part():
    """`still_aborted` returns the aborted transactions that go on after the first part of the data."""
    first = scan(data(0, pid=1) + abort(1, pid=1) + data(2, pid=2))
    left = still_aborted(aborted((1, 0), (2, 2), (1, 5)), first)
    assert list(left) == aborted((2, 2), (1, 5))


def test_no_bit_of_a_file_hides_a_record():
    """A batch is not hidden because of attribute bits that have no meaning. Kafka ignores them, too."""
    batch = encode([Record(0, 1, None, b"v")])
    for bit in range(7, 16):
        struct.pack_into(">H", batch, 21, 1 << bit)
        seal(batch, 0, len(batch))

        assert [b"v"] == [record.value for columns in decode(batch) for record in columns]


def test_a_marker_ends_only_earlier_transactions_of_its_producer():
    """A marker ends only transactions of its own producer that began at or below the marker's offset."""
    batches = scan(data(3, pid=1) + abort(4, pid=1) + abort(5, pid=2))
    open_ones = aborted((1, 3), (1, 4), (1, 5), (2, 5), (2, 6), (3, 0))
    assert still_aborted(open_ones, batches) == tuple(aborted((1, 5), (2, 6), (3, 0)))


def test_counting_leaves_out_markers_hidden_batches_and_those_partly_outside():
    """`count_visible` counts the visible records of the batches that are completely inside the range.

    Markers, hidden batches and batches that are partly outside the range are not counted.
    """
    two = encode([Record(Offset(offset), Timestamp(0), None, b"v") for offset in (5, 6)])
    log = data(0) + data(1, pid=1) + abort(2, pid=1) + data(3) + data(4, pid=2) + two
    batches = scan(log)
    assert 6 == batches.count_visible(0, 7)
    hide_aborted(batches, aborted((1, 1)))
    counts = {(0, 7): 5, (0, 6): 3, (0, 5): 3, (1, 7): 4, (5, 7): 2, (6, 7): 0, (2, 3): 0, (3, 3): 0}
    assert counts == {ends: batches.count_visible(*ends) for ends in counts}
