"""Tests of cleaning the batches of a group coordinator. Each of these batches begins at sequence 0."""

from __future__ import annotations

from tests.doubles.logs import LogOnDisk
from tests.doubles.records import NOW, marker
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp
from topicfs.storage.producers.append import Origin

RETENTION_MS = 1000


def cleaned_again(on_disk: LogOnDisk) -> None:
    """Advance the clock beyond all delete horizons, then clean everything below the active segment."""
    on_disk.log.appender.roll()
    on_disk.clock.advance(2 * RETENTION_MS)
    params = cleaning_params(on_disk.log, Offset(0), Timestamp(on_disk.clock.now))
    clean(on_disk.log, plan(params), now=Timestamp(on_disk.clock.now))


def compacted_log() -> LogOnDisk:
    on_disk = LogOnDisk(
        cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=RETENTION_MS
    )
    on_disk.clock.advance(NOW)
    return on_disk


def write(on_disk: LogOnDisk, key: bytes, value: bytes = b"v") -> None:
    """Write and commit a transaction of one record at sequence 0."""
    stamp = BatchStamp(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0, transactional=True)
    record = Record(Offset(0), NOW, key, value)
    on_disk.log.append(encode([record], stamp), origin=Origin.COORDINATOR)
    on_disk.log.append(marker(), origin=Origin.COORDINATOR)


def batches(on_disk: LogOnDisk) -> list[tuple[int, int]]:
    """Return the last offset and the number of records of each batch in the log."""
    log, offset, found = on_disk.log, Offset(0), []
    while len((fetched := log.read(offset, max_bytes=10_000)).data):
        for columns in decode(fetched.data, control=True):
            found += [(header.last_offset, header.record_count) for header in columns.batches]
        offset = fetched.next_offset
    return found


def test_only_the_last_batch_of_a_producer_is_kept():
    """Row 109: a producer's last batch stays, because it has the last sequence. Older batches and their markers go."""
    on_disk = compacted_log()
    for _ in range(4):
        write(on_disk, b"key")
    for _ in range(3):
        cleaned_again(on_disk)
    assert [(6, 1), (7, 1)] == batches(on_disk)
    write(on_disk, b"other")
    write(on_disk, b"other")
    for _ in range(3):
        cleaned_again(on_disk)
    assert [(6, 1), (7, 1), (10, 1), (11, 1)] == batches(on_disk)


def test_large_batches_that_all_go_hold_no_reader_up():
    """Row 109: a read from the start finds the next batch, however many batches of any size were dropped."""
    on_disk = compacted_log()
    for number in range(20):
        record = Record(Offset(0), NOW, b"key", bytes(3000 + number))
        on_disk.log.append(encode([record]))
    on_disk.log.append(encode([Record(Offset(0), NOW, b"last", b"v")]))
    cleaned_again(on_disk)
    fetched = on_disk.log.read(Offset(0), max_bytes=1)
    assert [19] == [record.offset for record in decode(fetched.data)[0]]
    assert [(19, 1), (20, 1)] == batches(on_disk)
