"""Data directories to look into: which partitions stand there, and each as a log that is only read.

Several directories may be those of several brokers. A partition then stands in as many as it has replicas; that
which shows most counts, and of all only what lies below the high watermark, as a consumer would be served.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import PipelineError
from storage.checkpoints.clean_shutdown import is_marked_clean
from storage.checkpoints.offset_checkpoint import read_offsets
from storage.config.topic import TopicConfig
from storage.disk import names
from storage.disk.lock import find_holder
from storage.disk.native import NativeFileSystem, system_clock
from storage.log.log import Log
from storage.manager.contents import read_contents
from storage.model import Isolation, Offset, TopicPartition
from storage.recovery.load import load_log


class _Home(NamedTuple):
    """What a data directory says of itself."""

    path: Path
    partitions: frozenset[TopicPartition]
    live: bool
    """Somebody owns it at this moment."""
    clean: bool
    """It was closed in order, so that its logs need no recovery."""
    recovery_points: dict[TopicPartition, Offset]
    log_start_offsets: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]


class _Stamp(NamedTuple):
    """What changes when a log does: then it is loaded anew."""

    files: tuple[tuple[str, int, int], ...]
    checkpointed: tuple[bool, bool, Offset | None, Offset | None]


class SourceDirectories:
    """Looks again at each call of `refresh`; logs that have not changed since stay open."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Look for the first time (NotALogDirectoryError, CorruptionError, PipelineError, OSError)."""
        self._paths = tuple(paths)
        self._files = NativeFileSystem(read_only=True)
        self._loaded: dict[Path, tuple[_Stamp, Log]] = {}
        self._chosen: dict[TopicPartition, Log] = {}
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
        if partition not in self._chosen:
            homes = [home for home in self._homes if partition in home.partitions]
            if not homes:
                raise PipelineError(f"{partition}: no such partition in {', '.join(map(str, self._paths))}")
            logs = [self._load(home, partition, replicated=len(homes) > 1) for home in homes]
            self._chosen[partition] = max(logs, key=lambda log: log.offsets().high_watermark)
        return self._chosen[partition]

    def close(self) -> None:
        """Close every log."""
        for _, log in self._loaded.values():
            _release(log)
        self._loaded, self._chosen = {}, {}

    def _look(self, path: Path) -> _Home:
        entries = self._files.list_directory(path)
        found = read_contents(entries, path).partitions
        if not found and names.META_PROPERTIES not in {entry.name for entry in entries}:
            raise PipelineError(
                f"{path}: no data directory: neither {names.META_PROPERTIES} nor a partition there"
            )
        live = find_holder(path) is not None
        return _Home(
            path,
            found,
            live,
            not live and is_marked_clean(self._files, path),
            *(
                read_offsets(self._files, path / checkpoint)
                for checkpoint in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)
            ),
        )

    def _load(self, home: _Home, partition: TopicPartition, *, replicated: bool) -> Log:
        directory = home.path / names.partition_directory(partition)
        high_watermark = home.high_watermarks.get(partition) if home.live or replicated else None
        if home.live and high_watermark is None:
            high_watermark = Offset(0)
        start = home.log_start_offsets.get(partition, Offset(0))
        stamp = _Stamp(_file_stamps(directory), (home.live, home.clean, start, high_watermark))
        loaded = self._loaded.get(directory)
        if loaded is not None:
            if loaded[0] == stamp:
                return loaded[1]
            _release(loaded[1])
        log = load_log(
            directory,
            files=self._files,
            config=TopicConfig(),
            clock=system_clock,
            clean=home.clean,
            recovery_point=home.recovery_points.get(partition, Offset(0)),
            log_start_offset=start,
            high_watermark=high_watermark,
        )
        self._loaded[directory] = stamp, log
        return log


def _file_stamps(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change of each file."""
    stamps = []
    for path in sorted(directory.iterdir()):
        status = path.stat()
        stamps.append((path.name, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def _release(log: Log) -> None:
    """Close what is open, without what a close in order would write."""
    for segment in log.chain.segments:
        segment.close()


def visible_end(log: Log, isolation: Isolation) -> int:
    """Exclusive end of what a reader of `isolation` is shown."""
    return log.offsets().visible_end(isolation)
