"""Tests of what a pass keeps of each batch and of its records (LogCleanerTest and MemoryRecordsTest)."""

from __future__ import annotations

import pytest

from tests.doubles.records import NOW, marker, record
from topicfs.storage.codec.batch import read_header, set_append_time, verify_checksum
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.control import ControlType
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.compaction.batch_decision import LastOfProducer, PassTransactions, RetentionParams
from topicfs.storage.compaction.offset_map import OffsetMap
from topicfs.storage.compaction.rewriter import Rewriter, build_map
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import Header, Offset, ProducerId, Timestamp, TimestampType

LATER = Timestamp(NOW + 100_000)
RETENTION = 86_400_000
PRODUCER = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 5}


def batch(*records, **fields):
    bounds = {name: fields.pop(name) for name in ("base_offset", "last_offset") if name in fields}
    return encode(list(records), BatchStamp(**fields), **bounds)


def cleaned(data, *, now=LATER, aborted=(), producers=None, keep_end=None, newer=()):
    """Run one pass over `data`; return the remaining bytes.

    The map has the keys of `newer`, which have newer records elsewhere, or else the keys of `data`.
    """
    data, newest, end = memoryview(bytes(data)), OffsetMap(24 * 1000), Offset(10**9)
    for key in newer:
        newest.put(key, 10**6)
    if not newer:
        end, full = build_map(newest, data, PassTransactions(aborted), start_offset=Offset(0))
        assert not full
    params = RetentionParams(
        now=now,
        delete_retention_ms=RETENTION,
        keep_end_offset=keep_end,
        producers=producers or {},
        legacy_deletes_before=Timestamp(0),
    )
    rewriter = Rewriter(newest, PassTransactions(aborted), params, map_end_offset=end)
    return b"".join(rewriter.rewrite(data, modified=LATER))


def headed(offset, key, time=NOW):
    """Return a record with a header."""
    return record(offset, key, b"value", time, [Header(b"name", b"content")])


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
    emptied = cleaned(after, newer=[b"a", b"b"], producers={7: LastOfProducer(Offset(1), 3)})
    assert (
        "000000000000000000000031ffffffff023651c1c1000000000001ffffffffffffffff0000018bcfe5680a"
        "000000000000000700030000000500000000"
    ) == emptied.hex()


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
    assert 0 == read_header(cleaned(data, newer=[b"a"], keep_end=1)).record_count
    assert b"" == cleaned(data, newer=[b"a"], keep_end=9)


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


@pytest.mark.parametrize("codec", Codec)
def test_the_producer_the_leader_epoch_and_the_codec_stay(codec):
    """Row 135: a rewritten batch keeps its offset range, producer, epoch, codec, base sequence, and record headers."""
    fields = {"leader_epoch": 67, "producer_id": 384, "producer_epoch": 5, "base_sequence": 23}
    stamp = BatchStamp(**fields, transactional=True, codec=codec)
    before = encode([headed(10, b"gone"), headed(11, b"stays", NOW + 5), headed(12, b"gone", NOW + 9)], stamp)
    after = cleaned(before, newer=[b"gone"])
    header = read_header(after)
    verify_checksum(after, header)
    assert (10, 12, 1) == (header.base_offset, header.last_offset, header.record_count)
    assert (67, 384, 5, 23, True) == (
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
    )
    assert codec is header.codec
    assert [headed(11, b"stays", NOW + 5)] == list(decode(after)[0])
    assert NOW + 5 == header.max_timestamp


def test_the_append_time_stays():
    """Row 135: if a topic uses LogAppendTime, a rewritten batch keeps its append time as its largest timestamp."""
    before = encode([headed(0, b"gone", NOW), headed(1, b"stays", NOW + 5)])
    set_append_time(before, 0, NOW + 77)
    after = cleaned(before, newer=[b"gone"])
    header = read_header(after)
    assert (TimestampType.LOG_APPEND_TIME, NOW + 77) == (header.timestamp_type, header.max_timestamp)
    assert [NOW + 77] == [each.timestamp for each in decode(after)[0]]


def test_a_batch_with_gaps_is_cleaned_again():
    """Row 135: a rewritten batch can be cleaned again, and keeps its original offset range."""
    before = encode([headed(offset, b"k%d" % offset) for offset in range(5)])
    once = cleaned(before, newer=[b"k1", b"k4"])
    twice = cleaned(once, newer=[b"k0"])
    assert [2, 3] == [each.offset for each in decode(twice)[0]]
    assert (0, 4) == (read_header(twice).base_offset, read_header(twice).last_offset)
    assert twice == cleaned(twice, newer=[b"k0"])


EMPTIED = BatchStamp(leader_epoch=67, producer_id=ProducerId(384), producer_epoch=5, base_sequence=23)


def test_an_emptied_batch_is_dropped_or_its_header_stays():
    """Row 136: an emptied batch stays, with 61 bytes, only if its producer or the log's end needs it."""
    before = encode([headed(10, b"gone"), headed(13, b"gone", NOW + 9)], EMPTIED)
    assert b"" == cleaned(before, newer=[b"gone"])
    for reason in ({"producers": {384: LastOfProducer(Offset(13), 5)}}, {"keep_end": 14}):
        after = cleaned(before, newer=[b"gone"], **reason)
        header = read_header(after)
        verify_checksum(after, header)
        assert 61 == len(after)
        assert (10, 13, 0) == (header.base_offset, header.last_offset, header.record_count)
        assert (384, 5, 23, 26, 67) == (
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.leader_epoch,
        )
        assert (Codec.NONE, -1, NOW + 9) == (header.codec, header.base_timestamp, header.max_timestamp)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_an_emptied_batch_has_no_codec(codec):
    """Row 136: an emptied batch is not compressed."""
    before = encode([headed(0, b"gone")], BatchStamp(codec=codec))
    assert Codec.NONE is read_header(cleaned(before, newer=[b"gone"], keep_end=1)).codec


def test_a_batch_that_is_empty_already_is_judged_alike():
    """Row 136: a batch that is already empty stays for as long as it is needed."""
    empty = encode([], EMPTIED, base_offset=10, last_offset=13, max_timestamp=NOW)
    assert bytes(empty) == cleaned(empty, newer=[b"gone"], producers={384: LastOfProducer(Offset(13), 5)})
    assert b"" == cleaned(empty, newer=[b"gone"])


def test_only_batches_that_lose_records_are_rewritten():
    """Row 136: of three batches one is dropped, one shrinks, and one is copied byte for byte."""
    gone, shrinks, stays = (
        encode([headed(0, b"gone")]),
        encode([headed(1, b"gone"), headed(2, b"a")]),
        encode([headed(3, b"b")]),
    )
    after = cleaned(gone + shrinks + stays, newer=[b"gone"])
    assert after.endswith(bytes(stays))
    assert [2, 3] == [each.offset for columns in decode(after) for each in columns]
