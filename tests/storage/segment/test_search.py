"""Tests of searching a log file forward by offset or timestamp, up to a torn end (FileRecordsTest)."""

from __future__ import annotations

import pytest

from tests.doubles.hostile import record, sealed
from tests.doubles.logs import LogOnDisk, offsets_of
from tests.doubles.records import batch
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.headers import Codec
from topicfs.storage.errors import OversizeError
from topicfs.storage.log.reading import times
from topicfs.storage.model import TimestampOffset
from topicfs.storage.segment.scan import windows
from topicfs.storage.segment.trace import BatchPassed, LookupTrace


@pytest.mark.parametrize("window_bytes", [64, 100, 1000])
@pytest.mark.parametrize("tail_bytes", [0, 1, 17, 18, 60, 68])
def test_a_partial_batch_at_the_end_is_not_there(tail_bytes, window_bytes):
    """Row 140: reading stops before a partial batch of any length, and loading removes this batch."""
    on_disk = LogOnDisk()
    whole = batch(b"a") + batch(b"b", b"c")
    on_disk.log.append(bytearray(whole))
    on_disk.log.close()
    stored = on_disk.content("00000000000000000000.log")
    on_disk.write("00000000000000000000.log", stored + bytes(batch(b"torn", offset=3))[:tail_bytes])
    file = on_disk.disk.open(on_disk.log.directory / "00000000000000000000.log")
    found = list(windows(file, 0, file.size(), window_bytes=window_bytes))
    assert [0, 2] == [header.last_offset for window in found for header in window.batches]
    assert len(whole) == found[-1].position + found[-1].batches.stop
    assert (tail_bytes == 0) == (found[-1].problem is None)
    on_disk.log = on_disk.load(clean=False)
    assert len(whole) == on_disk.log.segments()[0].size_bytes
    assert [0, 1, 2] == offsets_of(on_disk.log)


@pytest.mark.parametrize(
    ("target", "number"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (7, 3), (10, 3), (11, None)]
)
def test_the_batch_of_an_offset_is_the_first_that_does_not_end_before_it(target, number):
    """Row 140: an offset, even in a gap, is found in the first batch that does not end before it."""
    on_disk = LogOnDisk()
    sizes = []
    for first, count in ((0, 1), (1, 2), (3, 3), (7, 4)):
        data = batch(*[b"v"] * count, offset=first)
        sizes.append(len(data))
        on_disk.log.appender.append_as_follower(data)
    segment = on_disk.log.chain.active
    found = segment.find_batch(target, segment.size)
    assert (None if number is None else sum(sizes[:number])) == (None if found is None else found.position)


def test_a_reader_begins_at_a_record_found_by_its_time_without_a_search(monkeypatch):
    """A read at a record that was found by time needs no search, unless the log was truncated."""
    on_disk = LogOnDisk()
    for number in range(4):
        on_disk.log.append(batch(b"a", b"b", timestamp=[10 * number, 10 * number + 1]))
    segment_type, searches = type(on_disk.log.chain.active), []
    search = segment_type.read_batch
    monkeypatch.setattr(segment_type, "read_batch", lambda *of: searches.append(of) or search(*of))

    found = on_disk.log.offset_for_timestamp(21)
    assert [4] == [header.base_offset for header in scan(on_disk.log.read(found.offset, max_bytes=1).data)]
    assert (5, []) == (found.offset, searches)
    on_disk.log.replacer.truncate_to(5)
    on_disk.log.append(batch(b"c", timestamp=50))
    assert [5] == [header.base_offset for header in scan(on_disk.log.read(5, max_bytes=1).data)]
    assert searches


@pytest.mark.parametrize(("start", "offset"), [(5, 5), (6, 6), (7, None)])
def test_a_record_before_the_start_is_not_found_by_time(start, offset):
    """Row 140: a lookup by time begins at the log start offset, even inside a batch."""
    on_disk = LogOnDisk()
    on_disk.log.replacer.truncate_fully_and_start_at(5)
    on_disk.log.appender.append_as_follower(batch(b"a", b"b", offset=5, timestamp=[10, 11]))
    on_disk.log.delete_records(start)
    found = on_disk.log.offset_for_timestamp(9)
    assert offset == (None if found is None else found.offset)


def claiming(size: int, *, codec: Codec = Codec.ZSTD) -> bytearray:
    """Return a batch whose header claims time 9 although its record has time 1."""
    return sealed(record(bytes(size)), codec=codec, timestamps=(1, 9))


def test_a_search_among_batches_that_claim_too_much_ends(monkeypatch):
    """A search that inflates too many bytes without finding a record raises an error with the position."""
    monkeypatch.setattr(times, "MAX_WASTED_BYTES", 100_000)
    on_disk = LogOnDisk()
    for _ in range(3):
        on_disk.log.append(claiming(30_000), encoded_here=True)
    on_disk.log.append(batch(b"late", timestamp=9))
    assert TimestampOffset(9, 3, 0) == on_disk.log.offset_for_timestamp(5)
    on_disk.log.append(claiming(50_000), encoded_here=True)
    assert TimestampOffset(9, 3, 0) == on_disk.log.offset_for_timestamp(5)
    on_disk.log.delete_records(4)
    for _ in range(2):
        on_disk.log.append(claiming(50_000), encoded_here=True)
    with pytest.raises(OversizeError, match=r"00000\.log: position \d+: 100150 bytes read in vain"):
        on_disk.log.offset_for_timestamp(5)


def test_windows_with_only_earlier_records_are_skipped(monkeypatch):
    """A search by time skips many earlier batches even if no index entry lies between them."""
    monkeypatch.setattr(times, "LOOKUP_WINDOW_BYTES", 500)
    on_disk = LogOnDisk(index_interval_bytes=10**6)
    for _ in range(50):
        on_disk.log.append(batch(b"early", timestamp=1))
    on_disk.log.append(batch(b"late", timestamp=9))
    for _ in range(50):
        on_disk.log.append(batch(b"early", timestamp=1))
    assert TimestampOffset(9, 50, 0) == on_disk.log.offset_for_timestamp(2)
    trace = LookupTrace()
    assert TimestampOffset(9, 50, 0) == on_disk.log.offset_for_timestamp(2, trace=trace)
    assert 50 == sum(isinstance(step, BatchPassed) for step in trace.steps)
