"""The owner's part: appending the writes that were submitted, each one whole and once.

Before `begun` is in the manifest nothing of the write is in a log, and whatever is wrong refuses it. From then on it is
only ever continued: a batch is in the log already if a batch of the write's producer with its sequence, or a later
one, is there. The logs are on disk before the write is noted as done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from storage.codec.batch import read_header, set_producer
from storage.codec.headers import MAX_SEQUENCE
from storage.disk.filesystem import Clock
from storage.disk.names import WriteId
from storage.engine import Partition, batches_from
from storage.errors import InvalidRecordError, StorageError, UnknownTopicError
from storage.messages import Say
from storage.model import Offset, TopicPartition
from storage.producers.entry import next_run
from storage.staging.area import StagingArea
from storage.staging.manifest import BegunAppend, Manifest
from storage.staging.placement import Placement
from storage.staging.placer import CreateTopic, FindPartition, Placer, PlaceTakenError, check_room
from storage.staging.record import (
    CommittedQuery,
    read_committed,
    with_committed,
    write_committed,
)
from storage.staging.staged_file import Frame, check_whole, read_frames
from storage.validation.batches import AppendRules, check_as_leader
from storage.validation.conversion import convert


class Committer:
    """Commits the writes submitted to one data directory. One at a time, and only by the directory's owner."""

    def __init__(self, area: StagingArea, find: FindPartition, create: CreateTopic, *, clock: Clock) -> None:
        self._area = area
        self._find = find
        self._create = create
        self._clock = clock

    def commit_waiting(self, warn: Say, stopping: Callable[[], bool]) -> None:
        """Append every write that was submitted, until `stopping` (blocking).

        What fails is reported by `warn`, and is tried again the next time. Raises OSError where the directory cannot be read.
        """
        for write in self._area.waiting():
            if stopping():
                return
            try:
                self.commit(write)
            except (OSError, StorageError) as error:
                warn(f"write {write}: {error}; tried again")
        self._area.discard_abandoned(self._clock())

    def commit(self, write: WriteId) -> None:
        """Append a write that was submitted, or refuse it (blocking).

        Raises StorageError, OSError: it stays claimed, and the next call continues.
        """
        if self._area.is_committed(write):
            self._area.finish(write)
            return
        manifest = self._area.claim(write)
        if manifest is None:
            return
        if manifest.placement is not None:
            self._place(write, manifest, manifest.placement)
            return
        present: Mapping[TopicPartition, int] = {}
        if manifest.begun is not None:
            present = self._present(manifest.begun)
        else:
            try:
                begun = self._begin(write, self._check(manifest))
            except (OSError, StorageError) as error:
                self._area.refuse(write, str(error))
                return
            manifest = Manifest(manifest.files, begun)
            self._area.note(write, manifest)
        assert manifest.begun is not None
        records = self._append(manifest, manifest.begun, present)
        self._note_done(write, manifest.begun, records)
        self._area.finish(write)

    def _place(self, write: WriteId, manifest: Manifest, placement: Placement) -> None:
        """Append a write that keeps its offsets; one whose places were taken meanwhile ends there."""
        placer = Placer(self._area, self._find, self._create)
        begun = manifest.begun
        if begun is None:
            try:
                begun = placer.begin(manifest, placement)
            except (OSError, StorageError) as error:
                self._area.refuse(write, str(error))
                return
            self._area.note(write, replace(manifest, begun=begun))
        try:
            placer.append_missing(manifest, placement)
        except PlaceTakenError as error:
            self._area.refuse(write, str(error))
            return
        self._note_done(write, begun, {})
        self._area.finish(write)

    # Before the first record.

    def _check(self, manifest: Manifest) -> dict[TopicPartition, Partition]:
        """Return the partitions of a write all of whose batches may come in."""
        partitions: dict[TopicPartition, Partition] = {}
        records: dict[TopicPartition, int] = {}
        sizes: Counter[Path] = Counter()
        for staged in manifest.files:
            check_whole(self._area.directory / staged.name, self._area.files, staged)
        for frame in self._frames(manifest):
            if frame.partition not in partitions:
                partitions[frame.partition] = self._find(frame.partition)
            partition = partitions[frame.partition]
            added, size = self._check_batch(frame, partition)
            if partition.directory is not None:
                sizes[partition.directory] += size
            count = records.get(frame.partition, 0) + added
            if count > MAX_SEQUENCE:
                raise InvalidRecordError(f"{frame.partition}: more than {MAX_SEQUENCE} records in one write")
            records[frame.partition] = count
        check_room(sizes, self._area.files)
        return partitions

    def _check_batch(self, frame: Frame, partition: Partition) -> tuple[int, int]:
        """Return how many records a batch has that the partition's append would take, and how many bytes it comes to there."""
        rules = AppendRules.of(partition.config)
        try:
            incoming = check_as_leader(frame.batch, rules)
            converted, true = convert(frame.batch, incoming, rules, self._clock())
            if true is None:
                check_as_leader(converted, rules)
        except StorageError as error:
            raise InvalidRecordError(f"{frame.partition}: {error}") from error
        return sum(batch.records for batch in incoming), len(converted)

    def _begin(self, write: WriteId, partitions: Mapping[TopicPartition, Partition]) -> BegunAppend:
        known = read_committed(self._area.directory, self._area.files).get(write.series)
        producer_id, epoch = next_run((known.producer_id, known.epoch) if known else None)
        ends = {}
        for name, partition in partitions.items():
            # What other writers appended must not vanish in a crash: the end would lie behind records of this write.
            partition.sync()
            ends[name] = partition.offsets().recovery_point
        return BegunAppend(producer_id, epoch, ends)

    # From then on.

    def _present(self, begun: BegunAppend) -> dict[TopicPartition, int]:
        """Return the next sequence of each partition: how many of the write's records it has."""
        present = {}
        for name, end_offset in begun.end_offsets.items():
            partition = self._found(name)
            if partition is not None:
                present[name] = _next_sequence(partition, begun, end_offset)
        return present

    def _append(
        self, manifest: Manifest, begun: BegunAppend, present: Mapping[TopicPartition, int]
    ) -> Mapping[str, int]:
        """Append what is not there yet; return how many records all of the write has, by topic."""
        sequences: dict[TopicPartition, int] = dict.fromkeys(begun.end_offsets, 0)
        for frame in self._frames(manifest):
            partition = self._found(frame.partition)
            sequence = sequences[frame.partition]
            sequences[frame.partition] += read_header(frame.batch).record_count
            if partition is None or sequences[frame.partition] <= present.get(frame.partition, 0):
                continue
            set_producer(
                frame.batch,
                0,
                producer_id=begun.producer_id,
                producer_epoch=begun.epoch,
                base_sequence=sequence,
            )
            partition.append(frame.batch)
        records: Counter[str] = Counter()
        for name, count in sequences.items():
            records[name.topic] += count
        return dict(records)

    def _note_done(self, write: WriteId, begun: BegunAppend, records: Mapping[str, int]) -> None:
        for name in begun.end_offsets:
            partition = self._found(name)
            if partition is not None:
                partition.sync()
        if write.batch is not None:
            known = read_committed(self._area.directory, self._area.files)
            committed = CommittedQuery(write.batch, begun.producer_id, begun.epoch, records)
            write_committed(self._area.directory, self._area.files, with_committed(known, write, committed))

    def _found(self, name: TopicPartition) -> Partition | None:
        """Return the partition; None where its topic was deleted since, and the write's records with it."""
        try:
            return self._find(name)
        except UnknownTopicError:
            return None

    def _frames(self, manifest: Manifest) -> Iterator[Frame]:
        for staged in manifest.files:
            yield from read_frames(self._area.directory / staged.name, self._area.files)


def _next_sequence(partition: Partition, begun: BegunAppend, end_offset: Offset) -> int:
    """Return the sequence after the last one of the write in the log; 0 where none is there."""
    offsets = partition.offsets()
    # A new topic of the same name may be shorter.
    offset = Offset(min(max(end_offset, offsets.log_start_offset), offsets.log_end_offset))
    next_sequence = 0
    for batch in batches_from(partition, offset):
        if (batch.producer_id, batch.producer_epoch) == (begun.producer_id, begun.epoch):
            next_sequence = batch.last_sequence + 1
    if not next_sequence and offsets.log_start_offset > end_offset:
        raise StorageError(
            f"{partition.topic}-{partition.number}: offsets {end_offset} to {offsets.log_start_offset - 1} were "
            "deleted, so how far the write got is unknown; remove its file in the data directory to give it up"
        )
    return next_sequence
