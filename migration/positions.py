"""Reads groups' committed positions and state records from the files of `__consumer_offsets`.

A group's newest position in a partition counts; a null value removes the position. Positions in a transaction count
once the transaction is committed (kafka-coordinators.md#group-records). A takeover copies the state records. A cluster
accepts no state records from clients, so a group that is handed over has only positions until its first member joins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from topicfs.coordination.records import group_records
from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.codec.control import ControlType, control_type
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.codec.records import by_batch, encode
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState
from topicfs.storage.errors import CorruptBatchError, CorruptionError
from topicfs.storage.model import Offset, ProducerId, Record, Timestamp, TopicPartition
from topicfs.storage.partitioning import coordinator_partition
from topicfs.storage.segment.scan import windows

TOPIC = names.CONSUMER_OFFSETS
RECORDS_A_BATCH = 500

_KEPT_STATES = (SegmentFileState.LIVE, SegmentFileState.SWAP)
"""The states of the segment files that are read. SWAP files are the new segments of an interrupted compaction. They
may repeat records of live files.
"""


TakeBatch: TypeAlias = Callable[[BatchHeader, Iterable[Record]], None]


class GroupPartition(NamedTuple):
    group: str
    partition: TopicPartition


Positions = Mapping[GroupPartition, group_records.CommittedOffset]


class _Change(NamedTuple):
    """One record: its offset, and the position that it sets; None for a tombstone."""

    offset: Offset
    position: group_records.CommittedOffset | None


@dataclass(slots=True)
class _Replay:
    newest: dict[GroupPartition, _Change] = field(default_factory=dict)
    pending: dict[ProducerId, list[tuple[GroupPartition, _Change]]] = field(default_factory=dict)

    def take(self, batch: BatchHeader, records: Iterable[Record]) -> None:
        """Apply the records of a batch. Raises CorruptBatchError."""
        if batch.is_control:
            self._end(batch.producer_id, records)
        elif batch.is_transactional:
            self.pending.setdefault(batch.producer_id, []).extend(_changes(records))
        else:
            self._apply(_changes(records))

    def _end(self, producer_id: ProducerId, records: Iterable[Record]) -> None:
        for record in records:
            kind = control_type(record.key)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                self.end(producer_id, kind)

    def end(self, producer_id: ProducerId, kind: ControlType) -> None:
        changes = self.pending.pop(producer_id, [])
        self._apply(changes if kind is ControlType.COMMIT else [])

    def _apply(self, changes: Iterable[tuple[GroupPartition, _Change]]) -> None:
        for place, change in changes:
            if place not in self.newest or self.newest[place].offset <= change.offset:
                self.newest[place] = change


def directories_of(places: Mapping[TopicPartition, Path], topic: str) -> list[Path]:
    """Return the directories of a topic's partitions; `places` has the log directory of each partition."""
    return [
        log_dir / names.partition_directory(partition)
        for partition, log_dir in places.items()
        if partition.topic == topic
    ]


def read_positions(
    files: FileSystem, directories: Iterable[Path], committing: Iterable[ProducerId] = ()
) -> dict[GroupPartition, group_records.CommittedOffset]:
    """Read positions from `__consumer_offsets`, ignoring torn ends (blocking). Raises CorruptionError, OSError.

    The open transactions of the producers `committing` count as committed.
    """
    found: dict[GroupPartition, group_records.CommittedOffset] = {}
    for directory in directories:
        replay = _Replay()
        read_batches(files, directory, replay.take)
        for producer_id in committing:
            replay.end(producer_id, ControlType.COMMIT)
        for place, change in replay.newest.items():
            if change.position is not None:
                found[place] = change.position
    return found


def read_batches(files: FileSystem, directory: Path, take: TakeBatch) -> None:
    """Pass a partition's batches with their records, including markers, to `take` (blocking). Raises like `read_positions`."""
    for path, last in _logs(files, directory):
        _replay_file(files, path, take, last=last)


def position_batches(
    positions: Iterable[group_records.CommittedOffset], partitions: int
) -> Iterator[tuple[int, bytearray]]:
    """Yield batches for `__consumer_offsets`, each with the number of its partition."""
    records: dict[int, list[Record]] = defaultdict(list)
    for position in positions:
        number = coordinator_partition(position.group, partitions)
        key, value = group_records.write_committed_offset(position)
        time = Timestamp(max(0, position.commit_timestamp))
        records[number].append(Record(Offset(0), time, key, value))
    for number, written in sorted(records.items()):
        for first in range(0, len(written), RECORDS_A_BATCH):
            chunk = written[first : first + RECORDS_A_BATCH]
            yield number, encode([each._replace(offset=Offset(at)) for at, each in enumerate(chunk)])


def newer_than(present: Positions, positions: Positions) -> list[group_records.CommittedOffset]:
    """Return the positions that `present` lacks, or for which `present` has an earlier commit time."""
    return [
        position
        for place, position in sorted(positions.items())
        if place not in present or present[place].commit_timestamp < position.commit_timestamp
    ]


def belongs(position: group_records.CommittedOffset, topic_id: str) -> bool:
    """Return whether a position belongs to the topic with the id `topic_id`.

    Old records have no topic id. Their positions are assumed to belong to the topic.
    """
    return position.topic_id.int == 0 or encode_id(position.topic_id) == topic_id


def _changes(records: Iterable[Record]) -> Iterator[tuple[GroupPartition, _Change]]:
    for record in records:
        if record.key is None:
            continue
        known = group_records.read_key(record.key)
        if known is None or known[0] not in group_records.OFFSET_COMMIT_TYPES:
            continue
        fields = known[1]
        place = GroupPartition(fields["group"], TopicPartition(fields["topic"], fields["partition"]))
        value = record.value
        position = None if value is None else group_records.read_committed_offset(record.key, value)
        yield place, _Change(record.offset, position)


def _logs(files: FileSystem, directory: Path) -> list[tuple[Path, bool]]:
    """Return the logs of a partition's segments, ascending; the flag is True for the last log."""
    found = []
    for entry in files.list_directory(directory):
        file = names.parse_segment_file(entry.name)
        if file is not None and file.kind is SegmentFileKind.LOG and file.state in _KEPT_STATES:
            found.append((file.base_offset, entry.name))
    found.sort()
    return [(directory / name, base == found[-1][0]) for base, name in found]


def _replay_file(files: FileSystem, path: Path, take: TakeBatch, *, last: bool) -> None:
    with closing(files.open(path, read_only=True)) as file:
        for window in windows(file, 0, file.size(), check_crc=True):
            try:
                for columns in decode_each(window.data, 0, window.batches.stop, control=True):
                    for batch, records in by_batch(columns):
                        take(batch, records)
            except CorruptBatchError as error:
                raise error.in_file(path, window.position + error.position) from None
            if window.problem is not None and not last:
                place = window.position + window.batches.stop
                raise CorruptionError(path, place, window.problem.cause)


class GroupStateRecord(NamedTuple):
    time: Timestamp
    key: bytes
    value: bytes

    @property
    def is_readable(self) -> bool:
        try:
            group_records.read_value(group_records.GROUP_TYPE, self.value)
        except CorruptBatchError:
            return False
        return True


def read_group_records(files: FileSystem, directories: Iterable[Path]) -> dict[str, GroupStateRecord]:
    """Read groups' state records from directories of `__consumer_offsets` (blocking). Raises like `read_positions`."""
    found: dict[str, GroupStateRecord] = {}

    def take(batch: BatchHeader, records: Iterable[Record]) -> None:
        for record in () if batch.is_control else records:
            known = None if record.key is None else group_records.read_key(record.key)
            if record.key is None or known is None or known[0] != group_records.GROUP_TYPE:
                continue
            if record.value is None:
                found.pop(known[1]["group"], None)
            else:
                found[known[1]["group"]] = GroupStateRecord(record.timestamp, record.key, record.value)

    for directory in directories:
        read_batches(files, directory, take)
    return found


def group_batches(
    records: Mapping[str, GroupStateRecord], partitions: int
) -> Iterator[tuple[int, bytearray]]:
    """Yield a batch for each group, with the number of its partition of `__consumer_offsets`."""
    for group, (time, key, value) in sorted(records.items()):
        record = Record(Offset(0), Timestamp(max(0, time)), key, value)
        yield coordinator_partition(group, partitions), encode([record])
