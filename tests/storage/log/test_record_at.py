"""Tests that a lookup by time returns the decoded record, if readers may see it."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk, Transactions
from tests.doubles.records import batch
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import FoundRecord, decode
from topicfs.storage.errors import SearchTooLongError
from topicfs.storage.model import Isolation, Offset, Timestamp, TimestampOffset


def log_of(codec: Codec, *, batches: int = 40, records: int = 3) -> LogOnDisk:
    """Return a log of several segments whose records' times are ten times their offsets."""
    on_disk = LogOnDisk(internal_segment_bytes=700, index_interval_bytes=100, compression_type=codec.label)
    for number in range(batches):
        first = number * records
        values = [b"v%d" % offset for offset in range(first, first + records)]
        times = [10 * offset for offset in range(first, first + records)]
        on_disk.log.append(batch(*values, timestamp=times))
    return on_disk


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_record_is_the_one_that_a_read_at_its_offset_gives(codec):
    """`record_at` finds the same offset as `offset_for_timestamp`.

    The record, its batch and the file position equal those of a read at this offset.
    """
    log = log_of(codec).log
    assert len(log.chain.segments) > 2
    for time in range(-5, 1190, 7):
        found = log.record_at(Timestamp(time))
        assert isinstance(found, FoundRecord)
        assert found.time_and_offset == log.offset_for_timestamp(Timestamp(time))
        assert max(0, -(-time // 10)) == found.offset
        assert (10 * found.offset, b"v%d" % found.offset) == (found.record.timestamp, found.record.value)
        fetched = log.read(found.offset, max_bytes=1)
        assert bytes(fetched.data) == bytes(found.batch_bytes)
        assert (fetched.position, fetched.segment_base_offset) == (
            found.batch_position,
            found.segment_base_offset,
        )
        (columns,) = decode(fetched.data)
        assert found.offset == columns.offsets[found.number]
    assert None is log.record_at(Timestamp(1191))


def test_a_record_below_the_log_start_is_not_found():
    """A record below the log start is not found, even if the record's batch ends above the log start."""
    log = log_of(Codec.NONE, batches=2).log
    log.delete_records(Offset(2))
    found = log.record_at(Timestamp(0))
    assert isinstance(found, FoundRecord)
    assert (2, b"v2") == (found.offset, found.record.value)


def test_a_record_above_the_high_watermark_is_not_found():
    """Records above the high watermark are not found."""
    log = log_of(Codec.NONE, batches=2).log
    log.roles.lead(3, Offset(3))
    assert None is log.record_at(Timestamp(30))
    found = log.record_at(Timestamp(20))
    assert isinstance(found, FoundRecord)
    assert 2 == found.offset


def test_an_aborted_record_is_given_as_an_offset_from_which_to_read_on():
    """If the record at a time is aborted, a READ_COMMITTED lookup returns no record but an offset.

    The caller can continue to read at this offset. A READ_UNCOMMITTED lookup returns the record.
    """
    log = Transactions()
    log.write(b"a", b"b", pid=1)
    log.end(pid=1, commit=False)
    log.write(b"c", pid=2)
    log.end(pid=2)
    hidden = log.log.record_at(Timestamp(0))
    assert isinstance(hidden, TimestampOffset)
    assert 0 == hidden.offset
    found = log.log.record_at(Timestamp(0), isolation=Isolation.READ_UNCOMMITTED)
    assert isinstance(found, FoundRecord)
    assert (0, b"a") == (found.offset, found.record.value)


def test_a_search_ends_at_its_bound():
    """`max_bytes` limits the search: a longer search raises SearchTooLongError."""
    log = log_of(Codec.NONE).log
    with pytest.raises(SearchTooLongError):
        log.record_at(Timestamp(500), max_bytes=10)
