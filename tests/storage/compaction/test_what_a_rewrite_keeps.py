"""Tests of what a batch keeps if it loses some or all of its records (MemoryRecordsTest)."""

from __future__ import annotations

import pytest

from topicfs.storage.codec.batch import read_header, set_append_time, verify_checksum
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.compaction.batch_decision import LastOfProducer, PassTransactions, RetentionParams
from topicfs.storage.compaction.offset_map import OffsetMap
from topicfs.storage.compaction.rewriter import Rewriter
from topicfs.storage.model import Header, Offset, ProducerId, Record, Timestamp, TimestampType

NOW = Timestamp(1_700_000_100_000)
TIME = 1_700_000_000_000
GONE = 10**6


def record(offset, key, time=TIME):
    return Record(Offset(offset), Timestamp(time), key, b"value", (Header(b"name", b"content"),))


def rewritten(data, *, newer=(b"gone",), producers=None, keep_end=None) -> bytes:
    """Run one pass over `data`, and return the remaining bytes. Each key of `newer` has a newer record elsewhere."""
    newest = OffsetMap(2400)
    for key in newer:
        newest.put(key, GONE)
    params = RetentionParams(
        now=NOW,
        delete_retention_ms=1000,
        keep_end_offset=keep_end,
        producers=producers or {},
        legacy_deletes_before=Timestamp(0),
    )
    rewriter = Rewriter(newest, PassTransactions(()), params, map_end_offset=Offset(GONE + 1))
    return b"".join(rewriter.rewrite(memoryview(bytes(data)), modified=NOW))


FIELDS = {
    "leader_epoch": 67,
    "producer_id": ProducerId(384),
    "producer_epoch": 5,
    "base_sequence": 23,
    "transactional": True,
}


@pytest.mark.parametrize("codec", Codec)
def test_the_producer_the_leader_epoch_and_the_codec_stay(codec):
    """Row 135: a rewritten batch keeps its offset range, producer, epoch, codec, base sequence, and record headers."""
    stamp = BatchStamp(**FIELDS, codec=codec)
    before = encode(
        [record(10, b"gone"), record(11, b"stays", TIME + 5), record(12, b"gone", TIME + 9)], stamp
    )
    after = rewritten(before)
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
    assert [record(11, b"stays", TIME + 5)] == list(decode(after)[0])
    assert TIME + 5 == header.max_timestamp


def test_the_append_time_stays():
    """Row 135: with LogAppendTime the largest timestamp stays the append time."""
    before = encode([record(0, b"gone", TIME), record(1, b"stays", TIME + 5)])
    set_append_time(before, 0, TIME + 77)
    after = rewritten(before)
    header = read_header(after)
    assert (TimestampType.LOG_APPEND_TIME, TIME + 77) == (header.timestamp_type, header.max_timestamp)
    assert [TIME + 77] == [each.timestamp for each in decode(after)[0]]


def test_a_batch_with_gaps_is_cleaned_again():
    """Row 135: a rewritten batch can be cleaned again, and keeps its original offset range."""
    before = encode([record(offset, b"k%d" % offset) for offset in range(5)])
    once = rewritten(before, newer=(b"k1", b"k4"))
    twice = rewritten(once, newer=(b"k0",))
    assert [2, 3] == [each.offset for each in decode(twice)[0]]
    assert (0, 4) == (read_header(twice).base_offset, read_header(twice).last_offset)
    assert twice == rewritten(twice, newer=(b"k0",))


EMPTIED = BatchStamp(leader_epoch=67, producer_id=ProducerId(384), producer_epoch=5, base_sequence=23)


def test_an_emptied_batch_is_dropped_or_its_header_stays():
    """Row 136: an emptied batch stays, with 61 bytes, only if its producer or the log's end needs it."""
    before = encode([record(10, b"gone"), record(13, b"gone", TIME + 9)], EMPTIED)
    assert b"" == rewritten(before)
    for reason in ({"producers": {384: LastOfProducer(Offset(13), 5)}}, {"keep_end": 14}):
        after = rewritten(before, **reason)
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
        assert (Codec.NONE, -1, TIME + 9) == (header.codec, header.base_timestamp, header.max_timestamp)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_an_emptied_batch_has_no_codec(codec):
    """Row 136: an emptied batch is not compressed."""
    before = encode([record(0, b"gone")], BatchStamp(codec=codec))
    assert Codec.NONE is read_header(rewritten(before, keep_end=1)).codec


def test_a_batch_that_is_empty_already_is_judged_alike():
    """Row 136: a batch that is already empty stays for as long as it is needed."""
    empty = encode([], EMPTIED, base_offset=10, last_offset=13, max_timestamp=TIME)
    assert bytes(empty) == rewritten(empty, producers={384: LastOfProducer(Offset(13), 5)})
    assert b"" == rewritten(empty)


def test_only_batches_that_lose_records_are_rewritten():
    """Row 136: of three batches one is dropped, one shrinks, and one is copied byte for byte."""
    gone, shrinks, stays = (
        encode([record(0, b"gone")]),
        encode([record(1, b"gone"), record(2, b"a")]),
        encode([record(3, b"b")]),
    )
    after = rewritten(gone + shrinks + stays)
    assert after.endswith(bytes(stays))
    assert [2, 3] == [each.offset for columns in decode(after) for each in columns]
