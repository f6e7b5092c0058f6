"""Our engine's side of a comparison: read records from a directory, and write batches to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from testing.broker.client import Outgoing
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.codec.records import encode
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.engine import Partition
from topicfs.storage.log.log import Log
from topicfs.storage.model import Header, Isolation, Offset, Record, Timestamp
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.recovery.options import Checkpointed, LoadOptions
from topicfs.storage.segment.roll import SegmentDirectory

READ_BYTES = 1 << 20


def read_records(partition: Partition, isolation: Isolation = Isolation.READ_COMMITTED) -> list[Record]:
    """Verify checksums, and return every visible record from the log start on, as a consumer gets it."""
    offset = partition.offsets().log_start_offset
    reader = _Reader(offset)
    while True:
        fetched = partition.read(offset, max_bytes=READ_BYTES, isolation=isolation)
        if not len(fetched.data):
            return reader.records
        aborted = {(each.producer_id, each.first_offset) for each in fetched.aborted}
        for columns in decode(fetched.data, control=True):
            reader.take(columns, aborted)
        offset = fetched.next_offset


class _Reader:
    """Collects visible records: records at or above the log start that are neither markers nor aborted."""

    def __init__(self, start_offset: Offset) -> None:
        self.records: list[Record] = []
        self._start_offset = start_offset
        self._aborting: set[int] = set()

    def take(self, columns: Columns, aborted: set[tuple[int, int]]) -> None:
        first = 0
        for batch in columns.batches:
            records = [columns.record(index) for index in range(first, batch.record_end)]
            first = batch.record_end
            begun = {
                producer
                for producer, at in aborted
                if producer == batch.producer_id and at <= batch.last_offset
            }
            if batch.is_control:
                self._aborting.discard(batch.producer_id)
                aborted -= {
                    (p, at) for p, at in aborted if p == batch.producer_id and at <= batch.last_offset
                }
                continue
            self._aborting |= begun
            if batch.is_transactional and batch.producer_id in self._aborting:
                continue
            self.records += [record for record in records if record.offset >= self._start_offset]


def load(
    directory: Path,
    settings: dict[str, str] | None = None,
    *,
    clean: bool,
    clock: Clock = system_clock,
    **checkpointed: int,
) -> Log:
    """Load a partition's directory for reading and writing, creating it if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    return load_log(
        SegmentDirectory(directory, NativeFileSystem(), clock),
        TopicConfig.from_overrides({"retention.ms": "-1", **(settings or {})}),
        clean=clean,
        options=LoadOptions(
            checkpointed=Checkpointed(**{name: Offset(value) for name, value in checkpointed.items()})
        ),
    )


def batch_of(
    records: Iterable[Outgoing], stamp: BatchStamp | None = None, *, base_offset: int = 0
) -> bytearray:
    """Return a batch as a producer encodes it or, with a base offset, as a leader stores it."""
    return encode(
        [
            Record(
                Offset(base_offset + number),
                Timestamp(record.timestamp),
                record.key,
                record.value,
                tuple(Header(name.encode(), value) for name, value in record.headers),
            )
            for number, record in enumerate(records)
        ],
        stamp or BatchStamp(),
    )


def batches_in(log: bytes) -> list[bytearray]:
    """Split a segment's bytes into batches."""
    return [bytearray(log[batch.position : batch.end_position]) for batch in scan(log)]
