"""Tests of what a pass keeps of each batch, byte by byte (LogCleanerTest and MemoryRecordsTest)."""

from __future__ import annotations

import pytest

from tests.doubles.records import NOW, marker, record
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.control import ControlType
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.compaction.batch_decision import LastOfProducer, PassTransactions, RetentionParams
from topicfs.storage.compaction.offset_map import OffsetMap
from topicfs.storage.compaction.rewriter import Rewriter, build_map
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import Offset, Timestamp

LATER = Timestamp(NOW + 100_000)
RETENTION = 86_400_000
PRODUCER = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 5}


def batch(*records, **fields):
    bounds = {name: fields.pop(name) for name in ("base_offset", "last_offset") if name in fields}
    return encode(list(records), BatchStamp(**fields), **bounds)


def cleaned(data, *, now=LATER, aborted=(), producers=None, keep_end=None, newest=None, modified=LATER):
    """Run one pass over `data` with all keys in the map; return the remaining bytes."""
    data = memoryview(bytes(data))
    if newest is None:
        newest = OffsetMap(24 * 1000)
        end, full = build_map(newest, data, PassTransactions(aborted), start_offset=Offset(0))
        assert not full
    else:
        end = Offset(10**9)
    params = RetentionParams(
        now=now,
        delete_retention_ms=RETENTION,
        keep_end_offset=keep_end,
        producers=producers or {},
        legacy_deletes_before=Timestamp(0),
    )
    rewriter = Rewriter(newest, PassTransactions(aborted), params, map_end_offset=end)
    return b"".join(rewriter.rewrite(data, modified=modified))


def offsets(data):
    return [r.offset for columns in decode(data, control=True) for r in columns]


def test_the_newest_of_each_key_stays():
    """Row 103: the newest record of each key stays, in a batch that keeps its offset range."""
    data = batch(record(0, b"a"), record(1, b"b")) + batch(record(2, b"a"), record(3, b"c"))
    left = cleaned(data)
    assert [1, 2, 3] == offsets(left)
    assert (0, 1) == (read_header(left).base_offset, read_header(left).last_offset)


def test_records_without_a_key_are_dropped():
    """Row 103: a compacted log keeps no records without a key."""
    assert [1] == offsets(cleaned(batch(record(0, None), record(1, b"a"))))


def test_an_untouched_batch_is_passed_on_byte_for_byte():
    """Row 135: a batch that loses no records is copied byte for byte."""
    data = batch(record(0, b"a"), record(1, b"b"))
    assert cleaned(data) == bytes(data)


def test_a_tombstone_gets_its_horizon_as_kafka_writes_it():
    """Rows 110 and 137: the horizon counts from the time of the pass, and the records keep their times."""
    data = batch(
        record(16, b"a", b"1"), record(17, b"b", None, NOW + 10), base_offset=16, last_offset=18, **PRODUCER
    )
    once = cleaned(data, now=LATER)
    header = read_header(once)
    assert LATER + RETENTION == header.delete_horizon_ms
    assert [NOW, NOW + 10] == [r.timestamp for r in decode(once)[0]]
    assert (5, 7, 3) == (header.base_sequence, header.producer_id, header.producer_epoch)
    assert cleaned(once, now=LATER + RETENTION - 1) == once
    assert [16] == offsets(cleaned(once, now=LATER + RETENTION))


def test_the_golden_tombstone_pass():
    """A batch has Kafka's bytes before the first pass, after it, and when emptied (kafka-storage.md#tombstones)."""
    before = batch(record(0, b"a", b"1"), record(1, b"b", None, NOW + 10), **PRODUCER)
    assert "00000042ffffffff02287790cd0000" == bytes(before[8:23]).hex()
    after = cleaned(before)
    assert (
        "000000000000000000000048ffffffff02fb4ea86a0040000000010000018bd50d4aa00000018bcfe5680a"
        "0000000000000007000300000005000000021600bf8abf520002610231001400ab8abf520202620100"
    ) == after.hex()
    newest = _newer(b"b")
    newest.put(b"a", 100)
    emptied = cleaned(after, newest=newest, producers={7: LastOfProducer(Offset(1), 3)})
    assert (
        "000000000000000000000031ffffffff023651c1c1000000000001ffffffffffffffff0000018bcfe5680a"
        "000000000000000700030000000500000000"
    ) == emptied.hex()


def _newer(key):
    newest = OffsetMap(2400)
    newest.put(key, 100)
    return newest


def test_the_last_batch_of_a_live_producer_stays_empty():
    """Row 111: the last batch of a live producer stays without records, because the batch has the producer's sequence.

    The last batch of an expired producer is dropped.
    """
    data = batch(record(0, b"a"), producer_id=7, producer_epoch=0, base_sequence=0) + batch(record(1, b"a"))
    live = cleaned(data, producers={7: LastOfProducer(Offset(0), 0)})
    assert [0, 0] == [read_header(live).record_count, read_header(live).last_sequence]
    assert [1] == offsets(live)
    assert 1 == read_header(cleaned(data)).base_offset


def test_the_batch_that_ends_at_the_bound_stays_empty():
    """Row 112: an emptied batch that ends at `keep_end_offset` stays, so that the log keeps its end."""
    data = batch(record(0, b"a"))
    assert 0 == read_header(cleaned(data, newest=_newer(b"a"), keep_end=1)).record_count
    assert b"" == cleaned(data, newest=_newer(b"a"), keep_end=9)


TXN = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}


def test_aborted_records_go_and_their_marker_stays_for_this_pass():
    """Rows 105 and 106: an abort marker stays in the pass that removes its data. The next pass sets its horizon."""
    aborted = [AbortedSpan(7, 0, 1, 2)]
    data = batch(record(0, b"a"), **TXN) + marker(1, commit=False) + batch(record(2, b"b"))
    first = cleaned(data, aborted=aborted)
    assert [1, 2] == offsets(first)
    assert read_header(first).delete_horizon_ms is None
    second = cleaned(first)
    assert LATER + RETENTION == read_header(second).delete_horizon_ms
    assert cleaned(second, now=LATER + RETENTION - 1) == second
    assert [2] == offsets(cleaned(second, now=LATER + RETENTION))


def test_a_commit_marker_stays_with_its_data():
    """Row 106: a commit marker gets no horizon as long as a record of its transaction is stored."""
    data = batch(record(0, b"a"), **TXN) + marker(1, commit=True)
    assert cleaned(data) == bytes(data)


def test_an_emptied_batch_holds_its_marker():
    """Row 107: an emptied batch counts as data of its transaction, so the transaction's marker stays."""
    data = batch(record(0, b"a"), **TXN) + marker(1, commit=True) + batch(record(2, b"a"))
    producers = {7: LastOfProducer(Offset(0), 0)}
    first = cleaned(data, producers=producers)
    second = cleaned(first, producers=producers)
    assert [1, 2] == offsets(second)
    assert second == first


def test_an_emptied_marker_keeps_the_epoch():
    """Row 108: an emptied marker of a live producer stays if no data batch of this producer is left in the log.

    The marker stays in all later passes, because it has the producer's epoch.
    """
    producers = {7: LastOfProducer(None, 0)}
    with_horizon = cleaned(marker(1, commit=True))
    emptied = cleaned(with_horizon, now=LATER + RETENTION, producers=producers)
    assert (0, True) == (read_header(emptied).record_count, read_header(emptied).is_control)
    assert cleaned(emptied, now=LATER + 2 * RETENTION, producers=producers) == emptied


def test_a_users_key_equal_to_a_markers_key_removes_no_marker():
    """Row 118: a user's record whose key equals a marker's key removes no marker."""
    key = bytes.fromhex("00000001")
    data = batch(record(0, b"x"), **TXN) + marker(1, commit=True) + batch(record(2, key))
    assert [0, 1, 2] == offsets(cleaned(data))


def test_aborted_records_are_not_in_the_map():
    """An aborted record is not in the map, so it does not remove the older record of its key."""
    data = batch(record(0, b"a")) + batch(record(1, b"a"), **TXN) + marker(2, commit=False)
    assert [0, 2] == offsets(cleaned(data, aborted=[AbortedSpan(7, 1, 2, 3)]))


def test_retained_aborts_go_into_the_new_index():
    """Row 118: an abort is kept for the new index if the pass has read a batch of the aborted transaction."""
    span = AbortedSpan(7, 0, 1, 2)
    transactions = PassTransactions([span])
    transactions.read_data(read_header(batch(record(0, b"a"), **TXN)))
    data = marker(1, commit=False)
    assert not transactions.read_marker(read_header(data), ControlType.ABORT)
    assert transactions.retained == [span]


@pytest.mark.parametrize("tombstones", [True, False])
def test_a_full_map_ends_where_it_is_complete(tombstones):
    """Row 113: if the map becomes full, the pass ends at the last offset that the map covers."""
    value = None if tombstones else b"v"
    data = memoryview(bytes(b"".join(batch(record(n, b"%d" % n, value)) for n in range(5))))
    small = OffsetMap(24 * 4)
    assert (3, True) == build_map(small, data, PassTransactions(), start_offset=Offset(0))
