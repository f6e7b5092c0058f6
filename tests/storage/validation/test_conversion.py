"""Tests of how a client's batches are checked and changed before they enter a log (LogValidatorTest)."""

from __future__ import annotations

import struct

import pytest

from tests.doubles.logs import LogOnDisk
from tests.doubles.records import marker, record
from topicfs.storage.codec.batch import read_header, seal, set_max_timestamp
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import decode, encode
from topicfs.storage.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp, TimestampOffset, TimestampType
from topicfs.storage.producers.append import Origin

NOW = 1_700_000_000_000
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def records(*times, key=b"k"):
    return [record(n, key, b"value " * 20, time) for n, time in enumerate(times)]


def appended(batch, origin=Origin.CLIENT, **settings):
    """Append `batch` to a new log; return the stored header and records."""
    log = LogOnDisk(**settings).log
    log.append(batch, origin=origin)
    data = log.read(Offset(0), max_bytes=10_000).data
    read = [r for columns in decode(data, control=True) for r in columns]
    return read_header(data), read


def test_a_batch_that_counts_no_records_is_refused():
    """A batch with a count of 0 and a last offset delta of -1 is refused. The next batch would get the same offset."""
    batch = encode(records(NOW))[:61]
    struct.pack_into(">i", batch, 8, 61 - 12)
    struct.pack_into(">i", batch, 23, -1)
    struct.pack_into(">i", batch, 57, 0)
    seal(batch, 0, len(batch))
    with pytest.raises(InvalidRecordError, match="offsets out of range"):
        appended(batch)


@pytest.mark.parametrize("declared", [5, NOW - 7, NOW + 9])
def test_a_batch_is_found_by_the_times_of_its_records(declared):
    """If the largest timestamp in a client's header is wrong, it is replaced by the records' largest timestamp.

    The segment gets the right largest timestamp as well.
    """
    batch = encode(records(NOW, NOW + 2))
    set_max_timestamp(batch, 0, Timestamp(declared), TimestampType.CREATE_TIME)
    on_disk = LogOnDisk()
    on_disk.log.append(batch)
    assert NOW + 2 == read_header(batch).max_timestamp
    for log in (on_disk.log, on_disk.reopen()):
        assert NOW + 2 == log.segments()[0].largest_timestamp
        found = log.offset_for_timestamp(Timestamp(NOW + 1))
        assert found is not None
        assert (NOW + 2, 1) == (found.timestamp, found.offset)
        assert log.offset_for_timestamp(Timestamp(NOW + 3)) is None


@pytest.mark.parametrize("codec", CODECS)
def test_the_producers_codec_is_kept(codec):
    """With compression.type=producer only the offset and the epoch of a batch change."""
    batch = encode(records(NOW, NOW), BatchStamp(codec=codec))
    header, read = appended(bytearray(batch))
    assert (header.codec, header.checksum, len(read)) == (codec, read_header(batch).checksum, 2)


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("source", [Codec.NONE, *CODECS])
def test_another_codec_causes_recompression(source, target):
    """Row 124: recompression keeps records, times and producer fields."""
    stamp = BatchStamp(codec=source, producer_id=ProducerId(7), producer_epoch=1, base_sequence=3)
    wanted = records(NOW, NOW + 5, NOW - 5)
    header, read = appended(encode(wanted, stamp), compression_type=target)
    assert header.codec.label == ("none" if target == "uncompressed" else target)
    assert read == wanted
    assert (7, 1, 3) == (header.producer_id, header.producer_epoch, header.base_sequence)
    assert NOW + 5 == header.max_timestamp


def test_another_level_causes_no_recompression():
    """Row 124: a different level of the same codec does not cause recompression."""
    batch = encode(records(NOW), BatchStamp(codec=Codec.GZIP, compression_level=1))
    header, _ = appended(bytearray(batch), compression_type="gzip", compression_gzip_level=9)
    assert header.checksum == read_header(batch).checksum


def test_the_size_is_checked_again_after_recompression():
    """A batch that fits when it is compressed may be too large for an uncompressed topic."""
    big = [Record(Offset(0), Timestamp(NOW), None, b"a" * 5000)]
    batch = encode(big, BatchStamp(codec=Codec.GZIP))
    assert 1 == len(appended(bytearray(batch), max_message_bytes=1000)[1])
    with pytest.raises(RecordTooLargeError):
        appended(batch, max_message_bytes=1000, compression_type="uncompressed")


def test_compressed_inner_offsets_are_made_dense():
    """Row 125: inner offsets with gaps are numbered again if the offset range in the batch's header is right.

    Old clients send such compressed batches.
    """
    plain = encode(records(NOW, NOW), BatchStamp())
    second = len(plain) - (len(plain) - 61) // 2
    assert 2 == plain[second + 4]
    plain[second + 4] = 0
    odd = plain[:61] + deflate(Codec.GZIP, plain[61:])
    struct.pack_into(">i", odd, 8, len(odd) - 12)
    odd[22] = Codec.GZIP
    seal(odd, 0, len(odd))
    header, read = appended(odd)
    assert (header.codec, [r.offset for r in read]) == (Codec.GZIP, [0, 1])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_append_time_is_stamped_in_place(codec):
    """Row 126: the append time changes the type bit, the largest timestamp and the checksum.

    The base timestamp stays. The append returns the append time, and a lookup by this time finds the first record.
    """
    log = LogOnDisk(message_timestamp_type=TimestampType.LOG_APPEND_TIME).log
    assert NOW == log.append(encode(records(5, 6), BatchStamp(codec=codec))).append_time
    data = log.read(Offset(0), max_bytes=10_000).data
    header = read_header(data)
    assert (1, NOW, 5) == (header.timestamp_type, header.max_timestamp, header.base_timestamp)
    assert [NOW, NOW] == [r.timestamp for columns in decode(data) for r in columns]
    assert TimestampOffset(NOW, 0, 0) == log.offset_for_timestamp(7)


def test_append_time_with_recompression():
    """Row 126: recompression sets the append time as well."""
    header, read = appended(
        encode(records(5, 6)),
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
        compression_type="zstd",
    )
    assert (header.timestamp_type, header.codec, {r.timestamp for r in read}) == (1, Codec.ZSTD, {NOW})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_too_old_or_too_new_refuse_the_batch(codec):
    """Row 127: the error names all wrong records, and times are checked before keys."""
    settings = {
        "message_timestamp_before_max_ms": 1000,
        "message_timestamp_after_max_ms": 500,
        "cleanup_policy": ("compact",),
    }
    batch = encode(records(NOW, NOW - 1001, NOW + 501, key=None), BatchStamp(codec=codec))
    with pytest.raises(InvalidTimestampError, match=r"record 1, 2: .*before\.max\.ms=1000") as caught:
        appended(batch, **settings)
    assert (1, 2) == caught.value.records
    fine = encode(records(NOW - 1000, NOW + 500, -1), BatchStamp(codec=codec))
    assert 3 == len(appended(fine, **settings)[1])


def test_an_hour_ahead_is_the_default_limit():
    """By default a record may be at most an hour in the future, and have any age."""
    with pytest.raises(InvalidTimestampError, match=r"after\.max\.ms=3600000"):
        appended(encode(records(NOW + 3_600_001)))
    assert 2 == len(appended(encode(records(0, NOW + 3_600_000)))[1])


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
def test_compacted_topics_want_a_key_of_every_record(codec):
    """Row 63: a compacted topic refuses a record without a key, even in a compressed batch."""
    batch = encode([*records(NOW), Record(Offset(1), Timestamp(NOW), None, b"v")], BatchStamp(codec=codec))
    with pytest.raises(InvalidRecordError, match="record 1 without a key") as caught:
        appended(batch, cleanup_policy=("compact",))
    assert (1,) == caught.value.records


def test_markers_of_coordinators_are_never_compressed():
    """Row 123: a transaction marker stays uncompressed in a topic with a codec."""
    header, _ = appended(marker(), origin=Origin.COORDINATOR, compression_type="snappy")
    assert (header.codec, header.is_control) == (Codec.NONE, True)
