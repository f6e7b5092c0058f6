"""Data directories as a source: each of their partitions is a log that is opened for reading only.

Several directories may belong to several brokers; then each replica of a partition is in a different one. The source
reads the replica with the highest high watermark, and only the records below it, as a consumer does. Replicas of
topicfs are first opened read-only. Directories that do not belong together are refused, and a replica is read only if
it is in sync and has all records of the other in-sync replicas. If there is no such replica, the partition is refused.

A running broker's high watermark is that of its last checkpoint, some seconds ago. Records above it may still be
replaced by records of another replica. A topicfs that owns the directory has the only replica. Its high watermark is
its log end, and a record is in the file, whole and with its checksum, before its append returns. So all of its records
are visible, also to a query that begins right after an append. (If a write fails on a full or broken disk, a reader may
see for a moment a batch that is removed again and never acknowledged, as in any log that is read while it is written.)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.paths import contents_of
from topicfs.replication import holds_replicas
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.replication.replicas.rules.presence import missing_in_all
from topicfs.replication.replicas.startup import open_replicas
from topicfs.storage.checkpoints.clean_shutdown import is_marked_clean
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets
from topicfs.storage.checkpoints.partition_metadata import topic_id_of
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk import names
from topicfs.storage.disk.lock import find_holder
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.recovery.followed_log import FileStamp, FollowedLog, grew_only
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.recovery.options import Checkpointed, LoadOptions
from topicfs.storage.segment.roll import SegmentDirectory

_RETRIES = 5
"""Maximum number of retries to load a log whose segments change during the load."""


class _DataDirectory(NamedTuple):
    """A data directory, as its files describe it."""

    path: Path
    partitions: frozenset[TopicPartition]
    bounded: bool
    """True if another engine, such as a broker, owns the directory: its checkpointed high watermarks limit reads."""
    clean: bool
    """True if the directory was closed cleanly, so that its logs need no recovery."""
    recovery_points: dict[TopicPartition, Offset]
    log_start_offsets: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]


class _Stamp(NamedTuple):
    """Values about a log's files. If the log changes, at least one of the values changes."""

    topic_id: str | None
    """The topic's ID, read before the files. If the topic is created again, the next refresh notices the new ID."""
    files: tuple[FileStamp, ...]
    clean: bool
    log_start_offset: Offset
    high_watermark: Offset | None
    """The checkpointed high watermark. If None, the log end is the high watermark."""


class _Loaded(NamedTuple):
    """A log, and the stamp of its files from before it was loaded."""

    stamp: _Stamp
    log: Log
    followed: FollowedLog | None
    """Follows the log as it grows. None: the log was closed cleanly, so loading it again is cheap."""


class SourceDirectories:
    """Data directories that each `refresh` reads again. Logs that have not changed stay open."""

    def __init__(self, paths: Sequence[Path], left_out: Sequence[Path] = ()) -> None:
        """Read directories; `left_out` are lost replica directories. Raises StorageError, PipelineError, OSError."""
        self._paths = tuple(paths)
        self._readable = _readable_replicas(paths, left_out)
        self._files = NativeFileSystem(read_only=True)
        self._loaded: dict[Path, _Loaded] = {}
        self._chosen: dict[TopicPartition, _Loaded] = {}
        self.refresh()

    def refresh(self) -> None:
        self._directories = [self._look(path) for path in self._paths]
        self._chosen = {}

    def partitions(self) -> list[TopicPartition]:
        return sorted(
            {partition for data_directory in self._directories for partition in data_directory.partitions}
        )

    def log(self, partition: TopicPartition) -> Log:
        """Return the log with the highest high watermark as of `refresh` (blocking). Raises StorageError, OSError."""
        return self._choose(partition).log

    def _choose(self, partition: TopicPartition) -> _Loaded:
        if partition not in self._chosen:
            readable = self._readable.get(partition, self._paths)
            if isinstance(readable, str):
                raise PipelineError(readable)
            replicas = [
                data_directory
                for data_directory in self._directories
                if partition in data_directory.partitions and data_directory.path in readable
            ]
            if not replicas:
                raise PipelineError(
                    f"{partition}: no such partition, or no replica in sync, in {', '.join(map(str, self._paths))}"
                )
            found = [
                self._load(data_directory, partition, replicated=len(replicas) > 1)
                for data_directory in replicas
            ]
            self._chosen[partition] = max(found, key=lambda one: one.log.offsets().high_watermark)
        return self._chosen[partition]

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Return the topic ID of the log that `log` returns; None if no file has it. Raises StorageError, OSError."""
        return self._choose(partition).stamp.topic_id

    def inodes(self, partition: TopicPartition) -> dict[str, int]:
        """Return the inodes of a log's files by name, read before `log` loaded the log."""
        return {stamp.name: stamp.inode for stamp in self._choose(partition).stamp.files}

    def close(self) -> None:
        for loaded in self._loaded.values():
            _release(loaded.log)
        self._loaded, self._chosen = {}, {}

    def _look(self, path: Path) -> _DataDirectory:
        try:
            contents = contents_of(path, self._files)
        except FileNotFoundError:
            raise PipelineError(
                f"{path}: no such directory; each machine that runs tasks must have it under this path"
            ) from None
        holder = find_holder(path)
        return _DataDirectory(
            path,
            contents.partitions,
            holder is not None and not holder.is_this_engine,
            holder is None and is_marked_clean(self._files, path),
            *(
                read_offsets(self._files, path / checkpoint)
                for checkpoint in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)
            ),
        )

    def _load(
        self, data_directory: _DataDirectory, partition: TopicPartition, *, replicated: bool
    ) -> _Loaded:
        directory = data_directory.path / names.partition_directory(partition)
        high_watermark = (
            data_directory.high_watermarks.get(partition) if data_directory.bounded or replicated else None
        )
        if data_directory.bounded and high_watermark is None:
            high_watermark = Offset(0)
        start = data_directory.log_start_offsets.get(partition, Offset(0))
        stamp = _Stamp(
            topic_id_of(directory, self._files),
            _file_stamps(directory),
            data_directory.clean,
            start,
            high_watermark,
        )
        known = self._loaded.pop(directory, None)
        caught_up = None if known is None else _catch_up(known, stamp)
        loaded = caught_up or self._load_again(data_directory, partition, stamp)
        self._loaded[directory] = loaded
        return loaded

    def _load_again(
        self,
        data_directory: _DataDirectory,
        partition: TopicPartition,
        stamp: _Stamp,
        retries: int = _RETRIES,
    ) -> _Loaded:
        """Load the log; if compaction replaced segments meanwhile, load it again. Raises StorageError, OSError."""
        directory = data_directory.path / names.partition_directory(partition)
        try:
            loaded = self._load_once(data_directory, partition, stamp)
        except (CorruptionError, FileNotFoundError):
            now = _file_stamps(directory)
            if not retries or stamp.files == now:
                raise
        else:
            now = _file_stamps(directory)
            if not retries or stamp.files == now or grew_only(stamp.files, now):
                return loaded
            _release(loaded.log)
        return self._load_again(data_directory, partition, stamp._replace(files=now), retries - 1)

    def _load_once(self, data_directory: _DataDirectory, partition: TopicPartition, stamp: _Stamp) -> _Loaded:
        directory = data_directory.path / names.partition_directory(partition)
        recovery_point = data_directory.recovery_points.get(partition, Offset(0))
        reached = max(recovery_point, data_directory.high_watermarks.get(partition, Offset(0)))
        checkpointed = Checkpointed(recovery_point, stamp.log_start_offset, stamp.high_watermark, reached)
        place = SegmentDirectory(directory, self._files, system_clock)
        if data_directory.clean:
            log = load_log(place, TopicConfig(), clean=True, options=LoadOptions(checkpointed=checkpointed))
            return _Loaded(stamp, log, None)
        followed = FollowedLog(place, partition, checkpointed)
        return _Loaded(stamp, followed.log, followed)


def _readable_replicas(
    paths: Sequence[Path], left_out: Sequence[Path]
) -> dict[TopicPartition, Sequence[Path] | str]:
    """Return the directories of each partition whose replicas can be read, or the reason why none can be read.

    A replica can be read if it is in sync and lacks no records that another replica has. The result is empty for
    directories without replicas of topicfs. Raises StorageError, OSError.
    """
    if not holds_replicas(paths) or len(paths) + len(left_out) == 1:
        return {}
    with closing(open_replicas(paths, read_only=True, left_out=left_out)) as engine:
        return {
            TopicPartition(name, number): _readable(partition)
            for name, topic in engine.topics().items()
            for number, partition in topic.served.items()
        }


def _readable(partition: ReplicatedPartition) -> Sequence[Path] | str:
    logs = {one.number: one.log for one in partition.replicas_in_sync}
    found = [log for number, log in logs.items() if number not in partition.lacking]
    if logs and not found:
        start = min(log.log_start_offset for log in logs.values())
        nowhere = missing_in_all([*logs.values()], start)
        found = [log for log in logs.values() if missing_in_all([log], start) == nowhere]
    if logs and not found:
        return (
            f"{partition.name}: each replica lacks records that another one has ({partition.status().missing}), and Spark "
            "reads one; topicfs cat reads all; to read one of them as it is, leave the others out: the option without"
        )
    return [log.directory.parent for log in found]


def _catch_up(known: _Loaded, stamp: _Stamp) -> _Loaded | None:
    """Add the new records to a loaded log without reading the old records again; return the log.

    If that fails, close the log and return None.
    """
    before, _, followed = known
    if before == stamp:
        return known
    if (
        followed is not None
        and before.topic_id == stamp.topic_id
        and grew_only(before.files, stamp.files)
        and followed.catch_up(stamp.log_start_offset, stamp.high_watermark)
    ):
        return _Loaded(stamp, followed.log, followed)
    _release(known.log)
    return None


def _file_stamps(directory: Path) -> tuple[FileStamp, ...]:
    """Return the stamps of all files in a partition's directory."""
    stamps = []
    for path in sorted(directory.iterdir()):
        with suppress(FileNotFoundError):  # Retention and compaction may remove or rename files meanwhile.
            status = path.stat()
            stamps.append(FileStamp(path.name, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def _release(log: Log) -> None:
    """Close the files of a log without writing what a clean close writes."""
    for segment in log.chain.segments:
        segment.close()
