"""The owner's part: appends each submitted write once, as a whole.

A write can be refused until its manifest has `begun`. After that, the owner always continues the write. The
producer's sequence numbers in the logs show what was appended (`storage.producers.progress`). The owner flushes the
logs before it notes the commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from topicfs.storage.codec.batch import read_header, set_producer
from topicfs.storage.codec.headers import MAX_SEQUENCE
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.disk.names import WriteId
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.errors import InvalidRecordError, StorageError, UnknownTopicError
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import TopicPartition
from topicfs.storage.producers.entry import next_run
from topicfs.storage.producers.progress import ProgressLostError, last_batch, newest_epoch, own
from topicfs.storage.staging.area import StagingArea
from topicfs.storage.staging.manifest import BegunAppend, Content, Manifest
from topicfs.storage.staging.placer import Placer, PlaceTakenError, check_room, find_partition
from topicfs.storage.staging.record import CommittedQuery
from topicfs.storage.staging.staged_file import Frame
from topicfs.storage.validation.batches import AppendRules, check_as_leader
from topicfs.storage.validation.conversion import convert

_REMEDY = "to give the write up, remove its .claimed file in the data directory; the visible part stays"


class Committer:
    """Commits the writes submitted to one data directory. Only its owner may call it, for one write at a time."""

    def __init__(self, area: StagingArea, engine: LogEngine, *, clock: Clock) -> None:
        self._area = area
        self._engine = engine
        self._clock = clock

    def commit_waiting(self, warn: ReportLine, stopping: Callable[[], bool]) -> None:
        """Append submitted writes until `stopping`; failures go to `warn` and are retried. Blocks. Raises OSError."""
        for write in self._area.waiting():
            if stopping():
                return
            try:
                self.commit(write)
            except (OSError, StorageError) as error:
                warn(f"write {write}: {error}; will be retried")
        self._area.discard_abandoned(self._clock())

    def commit(self, write: WriteId) -> None:
        """Append a submitted write, or refuse it. Blocks. Raises StorageError, OSError; the next call continues."""
        if self._area.is_committed(write):
            self._area.finish(write)
            return
        manifest = self._area.claim(write)
        if manifest is None:
            return
        placer, placement = Placer(self._area, self._engine), manifest.placement
        begun = manifest.begun
        if begun is None:
            try:
                begun = (
                    self._begin(write, self._check(write, manifest))
                    if placement is None
                    else placer.begin(manifest, placement)
                )
            except (OSError, StorageError) as error:
                self._area.refuse(write, str(error))
                return
            self._area.note(write, manifest._replace(begun=begun))
        if placement is None:
            self._append(manifest, begun)
        else:
            try:
                placer.append_missing(manifest, placement, begun)
            except (PlaceTakenError, ProgressLostError) as error:
                self._area.refuse(write, str(error))
                return
        self._note_done(write, begun, manifest.content)
        self._area.finish(write)

    # Methods before the first record is appended.

    def _check(self, write: WriteId, manifest: Manifest) -> dict[TopicPartition, Partition]:
        """Return the partitions of a write, after checking that all of its batches can be appended."""
        partitions: dict[TopicPartition, Partition] = {}
        records: dict[TopicPartition, int] = {}
        sizes: Counter[Path] = Counter()
        for frame in self._area.frames(manifest, checked=True):
            if frame.partition not in partitions:
                partitions[frame.partition] = find_partition(
                    self._engine, frame.partition, write.target or None
                )
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
        """Check a batch as the partition's append does; return its number of records and its size in the log."""
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
        known = self._area.record.read(write.query).get(write.series)
        last_run = None
        if known is not None:
            # The epoch of a write that was abandoned after some appends is not noted. Its batches in the logs
            # have the epoch after the noted epoch.
            epochs = (newest_epoch(one, known.producer_id) for one in partitions.values())
            last_run = known.producer_id, max(known.epoch, *epochs)
        ends = {}
        for name, partition in partitions.items():
            # If a crash removed records of other writers, this write's records could begin below the noted
            # end.
            partition.sync()
            ends[name] = partition.offsets().recovery_point
        topic_ids = {name.topic: self._engine.topic(name.topic).topic_id for name in ends}
        return BegunAppend(*next_run(last_run), ends, topic_ids)

    # Methods after appending began.

    def _present(self, name: TopicPartition, partition: Partition, begun: BegunAppend) -> int:
        """Return the next sequence number of a partition: the number of the write's records that it already has."""
        since = begun.end_offsets[name]
        last = last_batch(partition, begun.producer_id, begun.epoch, since=since, remedy=_REMEDY)
        return 0 if last is None else last.last_sequence + 1

    def _append(self, manifest: Manifest, begun: BegunAppend) -> None:
        """Append the staged batches that the logs do not have yet."""
        sequences: dict[TopicPartition, int] = dict.fromkeys(begun.end_offsets, 0)
        found = self._found(begun)
        present = {name: self._present(name, partition, begun) for name, partition in found.items()}
        for frame in self._area.frames(manifest):
            partition = found.get(frame.partition)
            sequence = sequences[frame.partition]
            sequences[frame.partition] += read_header(frame.batch).record_count
            if partition is None or sequences[frame.partition] <= present[frame.partition]:
                continue
            set_producer(
                frame.batch,
                0,
                producer_id=begun.producer_id,
                producer_epoch=begun.epoch,
                base_sequence=sequence,
            )
            # The settings allowed the whole write when it began; a later setting must not leave half of it
            # visible.
            own(partition).append(frame.batch, accepted=True)

    def _note_done(self, write: WriteId, begun: BegunAppend, content: Content | None) -> None:
        for partition in self._found(begun).values():
            partition.sync()
        if write.batch is not None:
            committed = CommittedQuery(write.batch, begun.producer_id, begun.epoch, content, self._clock())
            self._area.record.note(write, committed, self._topic_ids)

    def _topic_ids(self) -> set[str]:
        return {topic.topic_id for topic in self._engine.topics().values()}

    def _found(self, begun: BegunAppend) -> dict[TopicPartition, Partition]:
        """Return the partitions of a begun write that still exist; records for a deleted topic are dropped."""
        found = {}
        for name in begun.end_offsets:
            with suppress(UnknownTopicError):
                found[name] = find_partition(self._engine, name, begun.topic_ids.get(name.topic))
        return found
