"""The owner's part of a write that keeps its offsets: puts every batch at its offset, once.

Once `begun` is in the manifest, the write continues after its producer's last batch (`storage.producers.progress`).
If another writer took an offset, the remaining part of the write is refused. The batches that were already appended
stay in the logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from topicfs.storage import errors
from topicfs.storage.codec.batch import assign_offsets, read_header, set_producer
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.headers import sequence_plus
from topicfs.storage.disk.filesystem import DiskSpace, FileSystem
from topicfs.storage.disk.names import is_internal
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.producers.entry import next_run
from topicfs.storage.producers.progress import last_batch
from topicfs.storage.staging.area import StagingArea
from topicfs.storage.staging.manifest import BegunAppend, LogPlacement, Manifest, Placement
from topicfs.storage.staging.staged_file import Frame
from topicfs.storage.validation.batches import check_as_follower

OVERHEAD_BYTES = 1 << 20
"""Space needed in addition to the batches, for index entries, checkpoints and names."""
_REMEDY = "delete the topic, and restore it again"


def check_room(needed: Mapping[Path, int], files: FileSystem) -> None:
    """Check, before any record is written, that the disks have room for the batches. Raises StorageError, OSError.

    `needed` has the size of the batches by directory. Directories that report the same sizes and free space count as one disk.
    """
    by_disk: Counter[DiskSpace] = Counter()
    directories: dict[DiskSpace, Path] = {}
    for directory, size in needed.items():
        space = files.space(directory)
        by_disk[space] += size
        directories[space] = directory
    for space, size in by_disk.items():
        free = space.available_blocks * space.block_bytes
        if size + OVERHEAD_BYTES > free:
            raise errors.StorageError(
                f"{directories[space].parent}: the write has {size} bytes of batches and needs {OVERHEAD_BYTES} beside "
                f"them, but {free} bytes are free on the disk; nothing was written"
            )


def find_partition(engine: LogEngine, name: TopicPartition, topic_id: str | None = None) -> Partition:
    """Return a writable partition of the topic with this ID. Raises UnknownTopicError, PolicyViolationError."""
    topic = engine.topic(name.topic)
    if topic_id not in (None, topic.topic_id):
        raise errors.UnknownTopicError(
            f"{name.topic}: was deleted and created again after the write was prepared"
        )
    if topic.internal:
        raise errors.PolicyViolationError(f"{name.topic}: is Kafka's own topic; only Kafka writes to it")
    partition = topic.partitions().get(name.partition)
    if partition is None:
        raise errors.UnknownTopicError.of_partition(*name, topic.partitions())
    return partition


class PlaceTakenError(errors.StorageError):
    """A log does not end where the write was prepared to begin, because another writer appended."""


class Placer:
    """Appends the batches of one write at their own offsets."""

    def __init__(self, area: StagingArea, engine: LogEngine) -> None:
        self._area = area
        self._engine = engine

    def begin(self, manifest: Manifest, placement: Placement) -> BegunAppend:
        """Check the whole write, and make the missing topics. Blocks. Raises StorageError, OSError."""
        if placement.partitions and self._area.replicated:
            raise errors.PolicyViolationError(
                "records can keep their offsets only in directories without replicas; restore them into another directory"
            )
        sizes = self._check_frames(manifest, placement)
        missing = [name for name in placement.topics if self._is_missing(name, placement)]
        for name, place in placement.partitions.items():
            if name.topic not in missing:
                _check_place(self._log(name), name, place)
        for topic in missing:
            new = placement.topics[topic]
            self._engine.create_topic(topic, partitions=new.partitions, overrides=new.overrides)
        for name, place in placement.partitions.items():
            if name.topic in missing:
                _check_place(self._log(name), name, place)
        needed: Counter[Path] = Counter()
        for name, size in sizes.items():
            needed[self._log(name).directory] += size
        check_room(needed, self._area.files)
        firsts = {name: place.first for name, place in placement.partitions.items()}
        topic_ids = {name.topic: self._engine.topic(name.topic).topic_id for name in firsts}
        return BegunAppend(*next_run(None), firsts, topic_ids)

    def append_missing(self, manifest: Manifest, placement: Placement, begun: BegunAppend) -> None:
        """Append the batches that the logs lack. Raises PlaceTakenError, ProgressLostError, StorageError, OSError."""
        logs: dict[TopicPartition, Log] = {}
        present: dict[TopicPartition, int] = {}
        for name, place in placement.partitions.items():
            try:
                logs[name] = log = self._log(name, begun.topic_ids.get(name.topic))
            except errors.UnknownTopicError:
                # The topic was deleted, and with it the records of this write.
                continue
            _start_over(log, place)
            last = last_batch(log, begun.producer_id, begun.epoch, since=place.first, remedy=_REMEDY)
            present[name] = -1 if last is None else last.last_offset
        sequences = dict.fromkeys(logs, 0)
        for frame in self._area.frames(manifest):
            name, batch = frame.partition, read_header(frame.batch)
            if name not in logs:
                continue
            sequence = sequences[name]
            sequences[name] = sequence_plus(sequence, batch.last_offset + 1 - batch.base_offset)
            if batch.last_offset > present[name]:
                set_producer(
                    frame.batch,
                    0,
                    producer_id=begun.producer_id,
                    producer_epoch=begun.epoch,
                    base_sequence=sequence,
                )
                _put(logs[name], frame, batch.base_offset)

    def _check_frames(self, manifest: Manifest, placement: Placement) -> Mapping[TopicPartition, int]:
        """Check that all batches are whole, and ascend without overlaps; return the size by partition."""
        sizes: Counter[TopicPartition] = Counter()
        ends: dict[TopicPartition, int] = {}
        for frame in self._area.frames(manifest, checked=True):
            name = frame.partition
            if name not in placement.partitions:
                raise errors.InvalidRecordError(f"{name}: a batch has no placement")
            try:
                incoming = check_as_follower(frame.batch, ends.get(name, placement.partitions[name].first))
                decode(frame.batch)
            except (errors.CorruptBatchError, errors.InvalidRecordError) as error:
                raise errors.InvalidRecordError(f"{name}: {error}") from error
            ends[name] = incoming[-1].last_offset + 1
            sizes[name] += len(frame.batch)
        return sizes

    def _is_missing(self, topic: str, placement: Placement) -> bool:
        if is_internal(topic):
            raise errors.PolicyViolationError(f"{topic}: is Kafka's own topic; only Kafka writes to it")
        numbers = [name.partition for name in placement.partitions if name.topic == topic]
        try:
            find_partition(self._engine, TopicPartition(topic, min(numbers, default=0)))
        except errors.UnknownTopicError:
            return True
        return False

    def _log(self, name: TopicPartition, topic_id: str | None = None) -> Log:
        partition = find_partition(self._engine, name, topic_id)
        if not isinstance(partition, Log):
            raise errors.PartitionOfflineError(f"{name}: {partition.status().state}")
        return partition


def _check_place(log: Log, name: TopicPartition, place: LogPlacement) -> None:
    # Flush first: if a crash removed records of other writers, the write would find a gap before its first
    # offset.
    log.sync()
    offsets = log.offsets()
    if offsets.log_end_offset != place.end:
        raise PlaceTakenError(
            f"{name}: ends at {offsets.log_end_offset}, but ended at {place.end} when the write was prepared"
        )
    if place.start is not None and offsets.log_start_offset != offsets.log_end_offset:
        raise PlaceTakenError(f"{name}: has records, so it cannot begin at {place.start}")


def _start_over(log: Log, place: LogPlacement) -> None:
    offsets = log.offsets()
    # If the log ends elsewhere, an earlier attempt has already started it over, or the records that this
    # write put there were removed.
    is_untouched = offsets.log_start_offset == offsets.log_end_offset == place.end
    if place.start not in (None, place.end) and is_untouched:
        log.replacer.truncate_fully_and_start_at(place.first, "begins where its records do")


def _put(log: Log, frame: Frame, base_offset: Offset) -> None:
    # Use the epoch of the log's present leader, because the epochs of a log never decrease.
    assign_offsets(frame.batch, 0, base_offset=base_offset, leader_epoch=log.offsets().leader_epoch)
    try:
        log.appender.append_as_follower(frame.batch)
    except errors.InvalidRecordError as error:
        raise PlaceTakenError(
            f"{frame.partition}: {error}: another writer appended there meanwhile; the records that were already placed are not removed"
        ) from error
