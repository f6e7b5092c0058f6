"""A damaged batch made again of an archive's records: what was there, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.doubles.kept_records import KeptRecords
from tests.doubles.records import record
from topicfs.storage.checkpoints.leader_epochs import EpochEntry
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Header, Offset, ProducerId, Record, Timestamp, TimestampType, TopicPartition
from topicfs.storage.scrub.archive import DamagedBatch, NotProvenError, proven_batch
from topicfs.storage.scrub.verdict import Bounds

ORDERS = TopicPartition("orders", 0)
BASE, NOW = 40, 1_700_000_000_000
BASE_OFFSET, LENGTH, EPOCH, MAGIC, CRC, ATTRIBUTES, COUNT, BODY = 0, 8, 12, 16, 17, 21, 57, 61
"""Positions of fields in a batch."""
RECORDS = [
    record(40, b"a", b"first", NOW),
    record(41, None, b"second", NOW + 5, [Header(b"trace", b"1"), Header(b"none", None)]),
    record(42, b"b", None, NOW + 3),
    record(43, b"", b"x" * 200, NOW + 9),
]
PRODUCER = BatchStamp(
    leader_epoch=3, producer_id=ProducerId(7), producer_epoch=1, base_sequence=100, transactional=True
)
PLAIN = BatchStamp(leader_epoch=3)


def made(stamp: BatchStamp = PLAIN, records: Sequence[Record] = RECORDS) -> bytes:
    return bytes(encode(records, stamp))


def batch_before(stamp: BatchStamp) -> bytes:
    """The batch of offsets 38 and 39, of the same producer."""
    return made(
        replace(stamp, base_sequence=98 if stamp.base_sequence >= 0 else -1), [record(38), record(39)]
    )


def damaged(
    data: bytes, *, before: bytes | None = None, behind: int = 44, whole: int | None = None
) -> DamagedBatch:
    """What is known of a damaged batch behind which offset `behind` begins, its true size being `whole`."""
    size = len(data) if whole is None else whole
    return DamagedBatch(
        partition=ORDERS,
        read=lambda wanted: data[:wanted],
        bounds=Bounds(BASE, 1000, (EpochEntry(3, Offset(30)),)),
        following=lambda passed: behind if passed == size else None,
        before=None if before is None else read_header(before),
        codec=(None, None),
    )


def flipped(data: bytes, at: int, mask: int = 4) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


@pytest.mark.parametrize("mask", [1, 128])
@pytest.mark.parametrize("stamp", [PLAIN, PRODUCER], ids=["plain", "transactional"])
def test_a_flipped_bit_anywhere_is_put_right(stamp, mask):
    """In any field of the header, the checksum and the fields before it too, and in the records."""
    good = made(stamp)
    for at in range(len(good)):
        one = damaged(flipped(good, at, mask), before=batch_before(stamp))
        assert good == proven_batch(KeptRecords(RECORDS), one), at


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_batch_is_made_again_where_it_was_compressed_as_here(codec):
    """A flipped bit in its records, in its checksum or in any other field."""
    good = made(replace(PLAIN, codec=codec))
    before = batch_before(replace(PLAIN, codec=codec))
    for at in range(len(good)):
        assert good == proven_batch(KeptRecords(RECORDS), damaged(flipped(good, at), before=before)), at


def test_of_a_batch_that_another_program_compressed_the_header_is_put_right_and_the_records_are_not():
    """They cannot be made byte for byte; what is there is known to be the records."""
    records = [record(n, value=b" ".join(b"%d" % (n * i * i) for i in range(300))) for n in range(40, 44)]
    good = made(replace(PLAIN, codec=Codec.GZIP, compression_level=9), records)
    assert good != made(replace(PLAIN, codec=Codec.GZIP), records)
    kept = KeptRecords(records)
    for at in (BASE_OFFSET + 7, EPOCH + 3, ATTRIBUTES + 1, 30, 40, COUNT + 3):
        assert good == proven_batch(kept, damaged(flipped(good, at), before=good)), at
    for at in (CRC, len(good) - 3):
        with pytest.raises(NotProvenError, match="has another checksum"):
            proven_batch(kept, damaged(flipped(good, at)))


def test_wiped_records_are_written_again():
    """The header says how they were written."""
    good = made(PRODUCER)
    wiped = good[:BODY] + bytes(len(good) - BODY)
    assert good == proven_batch(KeptRecords(RECORDS), damaged(wiped))


def test_a_wiped_header_is_made_again_where_the_checksum_is_there():
    """And the length: the rest follows from the batch before, and from the one behind."""
    good = made(PRODUCER)
    wiped = (
        bytes(LENGTH)
        + good[LENGTH:EPOCH]
        + bytes(CRC - EPOCH)
        + good[CRC:ATTRIBUTES]
        + bytes(BODY - ATTRIBUTES)
    )
    one = damaged(wiped + good[BODY:], before=batch_before(PRODUCER))
    assert good == proven_batch(KeptRecords(RECORDS), one)


def test_without_the_checksum_everything_else_must_agree():
    """A checksum that is damaged with something else proves nothing, nor does one that cannot be read."""
    good = made(PRODUCER)
    before = batch_before(PRODUCER)
    for at in range(ATTRIBUTES, len(good)):
        with pytest.raises(NotProvenError):
            proven_batch(KeptRecords(RECORDS), damaged(flipped(flipped(good, CRC), at), before=before))
    with pytest.raises(NotProvenError, match="its checksum cannot be read"):
        proven_batch(KeptRecords(RECORDS), replace(damaged(good), read=lambda size: None))


def test_a_damaged_checksum_is_not_believed_to_be_damaged_where_the_producer_is_unknown():
    """Its number is under the checksum, and in no archive: two damaged fields would look like one."""
    good = made(PRODUCER)
    with pytest.raises(NotProvenError):
        proven_batch(KeptRecords(RECORDS), damaged(flipped(good, CRC)))
    assert good == proven_batch(
        KeptRecords(RECORDS), damaged(flipped(good, CRC), before=batch_before(PRODUCER))
    )


def test_a_shorter_batch_is_none():
    """Its last offset and its count damaged, as is its checksum: what is there of it agrees with the archive's first records."""
    records = [record(n, value=b"v" * 20) for n in range(40, 44)]
    good = made(PLAIN, records)
    short = bytearray(made(PLAIN, records[:2]))
    data = bytes(short[:CRC]) + b"\0\0\0\0" + bytes(short[ATTRIBUTES:]) + good[len(short) :]
    with pytest.raises(NotProvenError):
        proven_batch(KeptRecords(records), damaged(data, whole=len(good)))


def test_records_that_differ_are_written_nowhere():
    """Of a topic that was made anew, or of another archive."""
    good = made()
    for kept in (
        [one._replace(value=b"other") for one in RECORDS],
        [one._replace(timestamp=Timestamp(NOW)) for one in RECORDS],
        RECORDS[:3],
        RECORDS[1:],
    ):
        for at in (BASE_OFFSET + 7, CRC, 30, BODY + 5):
            with pytest.raises(NotProvenError, match="has another checksum"):
                proven_batch(KeptRecords(kept), damaged(flipped(good, at)))


def test_an_archive_without_the_records_says_so():
    """With which they are, and why it may not have them."""
    with pytest.raises(
        NotProvenError, match="no record of the offsets 40 to 43: they came after it was made"
    ):
        proven_batch(KeptRecords([]), damaged(flipped(made(), BODY)))


def test_times_of_the_append_are_put_right():
    """Of a topic with message.timestamp.type=LogAppendTime the archive has the append's time alone."""
    stamp = replace(PLAIN, timestamp_type=TimestampType.LOG_APPEND_TIME)
    records = [record(n, timestamp=NOW) for n in range(40, 44)]
    good = made(stamp, records)
    for at in (CRC, 30, 40, BODY + 5):
        assert good == proven_batch(KeptRecords(records, 1), damaged(flipped(good, at))), at


def test_a_base_offset_that_does_not_follow_is_not_guessed():
    """Where every record looks the same it must lead exactly to the batch behind."""
    same = [record(n) for n in range(30, 60)]
    good = made(PLAIN, same[10:14])
    one = flipped(good, BASE_OFFSET + 7, 4)
    assert good == proven_batch(KeptRecords(same), damaged(one))
    for behind in (45, 48):
        with pytest.raises(NotProvenError):
            proven_batch(KeptRecords(same), damaged(flipped(good, BASE_OFFSET + 7, 64), behind=behind))


def test_a_gap_before_the_batch_stays():
    """Its base offset is not the one that follows, and its records are there."""
    later = [one._replace(offset=Offset(one.offset + 5)) for one in RECORDS]
    good = made(PLAIN, later)
    assert good == proven_batch(KeptRecords([*RECORDS, *later]), damaged(flipped(good, BODY + 5), behind=49))


def test_an_absurd_length_reads_no_more_than_there_is():
    """Bounds that no batch has are not looked for in the archive."""
    good = bytearray(made())
    good[23:27] = b"\x7f\xff\xff\xff"
    with pytest.raises(NotProvenError, match="its offsets cannot be told"):
        proven_batch(KeptRecords(RECORDS), replace(damaged(bytes(good)), following=lambda passed: None))
