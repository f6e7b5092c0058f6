"""Single records, as their files and extended attributes show them."""

from __future__ import annotations

import pytest

from tests.doubles.logs import Transactions, filled
from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import found_in, one_by_one
from topicfs.fusefs.forms import JSON, KV, VALUES
from topicfs.fusefs.views.records import (
    PlainRecord,
    content_of,
    earliest_offset,
    find_plain,
    find_record,
    first_record_at,
    latest_offset,
)
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Header, Isolation, Offset, Record, Timestamp, TimestampType


def test_a_record_comes_with_its_batch_and_place() -> None:
    """A record is found together with its batch, timestamp type, leader epoch, position and segment."""
    partition = MemoryPartition()
    partition.add(b"before")
    partition.roll()
    partition.add(b"first")
    position = len(partition.memory_segments[1].data)
    headers = (Header(b"h", b"1"), Header(b"n", None))
    record = Record(Offset(1), Timestamp(77), b"key", b"two\nlines", headers)
    partition.append(encode([Record(Offset(0), Timestamp(70), None, None), record]))
    found = found_in(partition, 3)
    assert record._replace(offset=Offset(3)) == found.record
    assert 77 == found.timestamp
    assert (TimestampType.CREATE_TIME, 0) == (found.batch.timestamp_type, found.batch.leader_epoch)
    assert (2, position, 1) == (found.batch.base_offset, found.batch_position, found.segment_base_offset)


def test_a_records_own_file_is_exactly_its_value_or_its_line() -> None:
    """In VALUES, a record's file is the value without a newline, empty for null; in other forms, it is the line."""
    partition = MemoryPartition()
    partition.add(b"value", None, key=b"k")
    first, second = found_in(partition, 0), found_in(partition, 1)
    assert (b"value", b"") == (content_of(first, VALUES, partition), content_of(second, VALUES, partition))
    assert (b"k\tvalue\n", b"k\t\\N\n") == (
        content_of(first, KV, partition),
        content_of(second, KV, partition),
    )
    assert b'"payload":"value"' in content_of(first, JSON, partition)


@pytest.mark.parametrize("size", [1, 100, 2_000_000])
def test_find_plain_finds_the_same_records_as_find_record(size) -> None:
    """`find_plain` finds the same value and time as `find_record`, in batches of any size up to its limit."""
    partition = MemoryPartition()
    values = [b"%06d" % number * 16 for number in range(-(-size // 106))]
    partition.add(*values)
    for offset in (0, len(values) // 2, len(values) - 1):
        found = found_in(partition, offset)
        expected = PlainRecord(found.offset, found.timestamp, content_of(found, VALUES, partition))
        assert expected == find_plain(partition, Offset(offset), Isolation.READ_COMMITTED)
    assert find_plain(partition, Offset(len(values)), Isolation.READ_COMMITTED) is None


def test_find_plain_leaves_large_and_compressed_batches_to_find_record() -> None:
    """`find_plain` returns None for large or compressed batches, which `find_record` counts in the allowance."""
    partition = MemoryPartition()
    partition.add(bytes(2**21))
    partition.append(encode([Record(Offset(0), Timestamp(1), None, b"packed")], BatchStamp(codec=Codec.LZ4)))
    for offset in (0, 1):
        assert find_plain(partition, Offset(offset), Isolation.READ_COMMITTED) is None
        assert find_record(partition, Offset(offset))


def test_there_is_no_record_outside_the_visible_log_nor_in_its_gaps() -> None:
    """No record is found below the log start, at or above the visible end, at a marker, or in a gap."""
    partition = MemoryPartition()
    partition.add(b"0", b"1", b"2")
    partition.add_marker()
    partition.skip_offsets(2)
    partition.add(b"6", b"7")
    partition.delete_records(Offset(1))
    partition.last_stable_offset = 7
    assert [1, 2, 6] == [offset for offset in range(-1, 10) if find_record(partition, Offset(offset))]
    assert b"7" == found_in(partition, 7, Isolation.READ_UNCOMMITTED).record.value


def test_finding_a_record_reads_its_batch_alone() -> None:
    """Finding a record reads only its batch."""
    partition = one_by_one(5000, b"value %d")
    partition.bytes_read = 0
    assert b"value 2500" == found_in(partition, 2500).record.value
    assert partition.bytes_read < 100


def test_the_first_and_the_last_record_are_those_a_reader_sees() -> None:
    """The first and last offsets are the offsets of visible records, not of markers or gaps.

    Without visible records, both are None.
    """
    partition = MemoryPartition()
    assert earliest_offset(partition) is None
    assert latest_offset(partition) is None
    partition.add_marker()
    assert earliest_offset(partition) is None
    assert latest_offset(partition) is None
    partition.skip_offsets(3)
    partition.add(b"4", b"5", b"6")
    partition.add(b"7")
    partition.add_marker()
    assert (4, 7) == (earliest_offset(partition), latest_offset(partition))
    partition.delete_records(Offset(5))
    partition.last_stable_offset = 7
    assert (5, 6) == (earliest_offset(partition), latest_offset(partition))
    assert 7 == latest_offset(partition, isolation=Isolation.READ_UNCOMMITTED)


def test_finding_a_record_in_a_damaged_batch_raises_an_error() -> None:
    """Finding a record in a damaged batch raises an error with the position; records in other batches are found."""
    partition = one_by_one(3)
    partition.damage(1)
    with pytest.raises(CorruptionError) as caught:
        find_record(partition, Offset(1))
    assert partition.memory_segments[0].positions[1] == caught.value.position
    for offset in (0, 2):
        assert find_record(partition, Offset(offset)) is not None
    assert (0, 2) == (earliest_offset(partition), latest_offset(partition))


def test_a_record_found_by_its_time_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search by time returns the decoded record, without a second read of the log."""
    log = filled(12).log
    monkeypatch.setattr(log, "read", None)
    found = first_record_at(log, Timestamp(45))
    assert found is not None
    assert (5, 50) == (found.offset, found.timestamp)


@pytest.mark.parametrize(
    ("isolation", "expected"), [(Isolation.READ_COMMITTED, b"c"), (Isolation.READ_UNCOMMITTED, b"a")]
)
def test_a_time_leads_past_the_records_that_readers_do_not_see(isolation: Isolation, expected: bytes) -> None:
    """A search by time skips records of aborted transactions."""
    log = Transactions()
    log.write(b"a", b"b", pid=1)
    log.end(pid=1, commit=False)
    log.write(b"c", pid=2)
    log.end(pid=2)
    found = first_record_at(log.log, Timestamp(0), isolation)
    assert found is not None
    assert expected == found.record.value
