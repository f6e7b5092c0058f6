"""Data directories to look into: which partitions stand there, and each as a log that is only read.

Several directories may be those of several brokers. A partition then stands in as many as it has replicas; that
which shows most counts, and of all only what lies below the high watermark, as a consumer would be served.

A live broker's high watermark is the one it checkpointed last, some seconds ago: what lies beyond may yet be taken back
in favour of another replica. A topicfs that owns the directory has the only replica. Its high watermark is its log end,
and a record is in the file, whole and with its checksum, before its writer is told: so all of that is shown, and
who counts after an append was answered finds it. (Of a write that fails on a full or broken disk a reader may in that
moment see a batch that is cut off again and never acknowledged, as on any log that is read while it is written.)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import PipelineError
from pipeline.places.paths import check_is_data_directory, topic_id_of
from storage.checkpoints.clean_shutdown import is_marked_clean
from storage.checkpoints.offset_checkpoint import read_offsets
from storage.config.topic import TopicConfig
from storage.directories.contents import read_contents
from storage.disk import names
from storage.disk.lock import find_holder
from storage.disk.native import NativeFileSystem, system_clock
from storage.log.log import Log
from storage.model import Isolation, Offset, TopicPartition
from storage.recovery.following import FileStamp, FollowedLog, grew_only
from storage.recovery.load import Checkpointed, load_log


class _Home(NamedTuple):
    """What a data directory says of itself."""

    path: Path
    partitions: frozenset[TopicPartition]
    bounded: bool
    """By its checkpointed high watermarks: somebody else than this engine does."""
    clean: bool
    """It was closed in order, so that its logs need no recovery."""
    recovery_points: dict[TopicPartition, Offset]
    log_start_offsets: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]


class _Stamp(NamedTuple):
    """What changes when a log does."""

    topic_id: str | None
    """Read first: where the topic is made anew meanwhile, the id is the old one's, which whoever looks again finds out."""
    files: tuple[FileStamp, ...]
    clean: bool
    log_start_offset: Offset
    high_watermark: Offset | None
    """None: its end."""


class _Loaded(NamedTuple):
    """A log as it was when its files had this stamp."""

    stamp: _Stamp
    log: Log
    followed: FollowedLog | None
    """None where it was closed in order: loading that anew costs nothing."""


class SourceDirectories:
    """Looks again at each call of `refresh`; logs that have not changed since stay open."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Look for the first time (NotALogDirectoryError, CorruptionError, PipelineError, OSError)."""
        self._paths = tuple(paths)
        self._files = NativeFileSystem(read_only=True)
        self._loaded: dict[Path, _Loaded] = {}
        self._chosen: dict[TopicPartition, _Loaded] = {}
        self.refresh()

    def refresh(self) -> None:
        """See what is there now."""
        self._homes = [self._look(path) for path in self._paths]
        self._chosen = {}

    def partitions(self) -> list[TopicPartition]:
        """Every partition, ascending."""
        return sorted({partition for home in self._homes for partition in home.partitions})

    def log(self, partition: TopicPartition) -> Log:
        """The partition's log as it stands, of its replicas that which shows most (StorageError, OSError; blocking)."""
        return self._choose(partition).log

    def _choose(self, partition: TopicPartition) -> _Loaded:
        if partition not in self._chosen:
            homes = [home for home in self._homes if partition in home.partitions]
            if not homes:
                raise PipelineError(f"{partition}: no such partition in {', '.join(map(str, self._paths))}")
            found = [self._load(home, partition, replicated=len(homes) > 1) for home in homes]
            self._chosen[partition] = max(found, key=lambda one: one.log.offsets().high_watermark)
        return self._chosen[partition]

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Give the id of the topic whose log `log` gives; None where no file tells it (StorageError, OSError)."""
        return self._choose(partition).stamp.topic_id

    def close(self) -> None:
        """Close every log."""
        for loaded in self._loaded.values():
            _release(loaded.log)
        self._loaded, self._chosen = {}, {}

    def _look(self, path: Path) -> _Home:
        entries = self._files.list_directory(path)
        contents = read_contents(entries, path)
        check_is_data_directory(path, entries, contents)
        holder = find_holder(path)
        return _Home(
            path,
            contents.partitions,
            holder is not None and not holder.is_this_engine,
            holder is None and is_marked_clean(self._files, path),
            *(
                read_offsets(self._files, path / checkpoint)
                for checkpoint in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)
            ),
        )

    def _load(self, home: _Home, partition: TopicPartition, *, replicated: bool) -> _Loaded:
        directory = home.path / names.partition_directory(partition)
        high_watermark = home.high_watermarks.get(partition) if home.bounded or replicated else None
        if home.bounded and high_watermark is None:
            high_watermark = Offset(0)
        start = home.log_start_offsets.get(partition, Offset(0))
        stamp = _Stamp(
            topic_id_of(directory, self._files), _file_stamps(directory), home.clean, start, high_watermark
        )
        known = self._loaded.pop(directory, None)
        if known is None:
            loaded = self._load_anew(home, partition, stamp)
        elif known.stamp == stamp:
            loaded = known
        elif (caught_up := _catch_up(known, stamp)) is not None:
            loaded = caught_up
        else:
            _release(known.log)
            loaded = self._load_anew(home, partition, stamp)
        self._loaded[directory] = loaded
        return loaded

    def _load_anew(self, home: _Home, partition: TopicPartition, stamp: _Stamp) -> _Loaded:
        directory = home.path / names.partition_directory(partition)
        recovery_point = home.recovery_points.get(partition, Offset(0))
        checkpointed = Checkpointed(recovery_point, stamp.log_start_offset, stamp.high_watermark)
        if home.clean:
            log = load_log(
                directory,
                files=self._files,
                config=TopicConfig(),
                clock=system_clock,
                clean=True,
                **checkpointed._asdict(),
            )
            return _Loaded(stamp, log, None)
        followed = FollowedLog(
            directory, partition, files=self._files, clock=system_clock, checkpointed=checkpointed
        )
        return _Loaded(stamp, followed.log, followed)


def _catch_up(known: _Loaded, stamp: _Stamp) -> _Loaded | None:
    """The log as it is now, without reading again what is known; None where that cannot be."""
    followed = known.followed
    if followed is None or known.stamp.topic_id != stamp.topic_id:
        return None
    if not grew_only(known.stamp.files, stamp.files):
        return None
    if not followed.catch_up(stamp.log_start_offset, stamp.high_watermark):
        return None
    return _Loaded(stamp, followed.log, followed)


def _file_stamps(directory: Path) -> tuple[FileStamp, ...]:
    """Stamp of each file."""
    stamps = []
    for path in sorted(directory.iterdir()):
        with suppress(FileNotFoundError):  # retention removes files beside us
            status = path.stat()
            stamps.append(FileStamp(path.name, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def _release(log: Log) -> None:
    """Close what is open, without what a close in order would write."""
    for segment in log.chain.segments:
        segment.close()


def visible_end(log: Log, isolation: Isolation) -> int:
    """Exclusive end of what a reader of `isolation` is shown."""
    return log.offsets().visible_end(isolation)
