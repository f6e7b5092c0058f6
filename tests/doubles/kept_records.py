"""An archive in memory: the records of partitions as they were at one time."""

from __future__ import annotations

from collections.abc import Sequence

from tests.doubles.records import read_records
from topicfs.storage.engine import Partition
from topicfs.storage.model import Record, TopicPartition
from topicfs.storage.scrub.archive import ArchivedRecord


class KeptRecords:
    """Implements storage.scrub.archive.RecordArchive."""

    name = "/archive"

    def __init__(self, records: Sequence[Record], timestamp_type: int = 0) -> None:
        self._records = [ArchivedRecord(one, timestamp_type) for one in records]

    def records(
        self, partition: TopicPartition, start_offset: int, end_offset: int, /
    ) -> list[ArchivedRecord]:
        del partition
        return [one for one in self._records if start_offset <= one.record.offset < end_offset]


def kept_of(partition: Partition) -> KeptRecords:
    """Return an archive of what a partition has now."""
    return KeptRecords(read_records(partition))
