"""Loads the partitions of the data directories."""

import gc
import logging
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.directories.offline_partition import OfflinePartition
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.disk.names import LEADER_EPOCHS
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptionError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import CleaningState, Offset, Timestamp, TopicPartition
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.recovery.options import Checkpointed, LoadOptions
from topicfs.storage.segment.roll import SegmentDirectory

_LOGGER = logging.getLogger(__name__)


class PartitionToLoad(NamedTuple):
    """A partition to be loaded."""

    partition: TopicPartition
    config: TopicConfig
    directory: OpenDirectory | None
    """None if the partition is missing; it may be in a failed directory."""
    refused: str | None = None
    """Why the partition must not be loaded; None if it may be loaded."""


def load_all(
    directories: Directories, wanted: Iterable[PartitionToLoad], warn: ReportLine
) -> dict[TopicPartition, Partition]:
    """Load partitions; use threads if a disk must be read. Blocks.

    A partition that cannot be loaded becomes an offline partition.
    """
    found = list(wanted)
    loaded: list[Partition] = []
    with collection_paused():
        if all(directory.clean for directory in directories.online):
            loaded += _load_cached(directories, found, warn)
        if left := found[len(loaded) :]:
            threads_wanted = directories.config.recovery_threads * len(directories.all)
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(threads_wanted, thread_name_prefix="load") as threads:
                loaded += threads.map(lambda one: load(directories, one, warn), left)
    return {one.partition: log for one, log in zip(found, loaded, strict=True)}


def _load_cached(
    directories: Directories, found: Sequence[PartitionToLoad], warn: ReportLine
) -> Iterator[Partition]:
    """Load partitions one after the other, up to and including the first partition that had to be read from a disk."""
    before = _blocks_read()
    for one in found:
        yield load(directories, one, warn)
        if _blocks_read() != before:
            return


def _blocks_read() -> int:
    """Return how many blocks were read from disks, and not from the page cache, for this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection: the loaded objects stay, and scanning them repeatedly takes a third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def load(
    directories: Directories,
    found: PartitionToLoad,
    warn: ReportLine,
    checkpointed: Checkpointed | None = None,
) -> Partition:
    """Load a partition with the offsets in its directory's checkpoints, or with `checkpointed`. Blocks."""
    directory = found.directory
    if directory is None:
        return _missing(directories, found)
    reopened = checkpointed is not None
    checkpointed = checkpointed or directory.writer.checkpointed(found.partition)
    if directory.failure is not None:
        return _offline(found, _place(found, directory), directory.failure, checkpointed.log_start_offset)
    if found.refused is not None:
        reason = found.refused
    else:
        try:
            log = _load_readable(found, directory, checkpointed, warn, reopened=reopened)
        except (StorageError, OSError) as error:
            reason = reason_of(error)
        else:
            if log.hidden is not None:
                warn(f"{found.partition}: {log.hidden}")
            return log
    warn(f"{found.partition}: offline: {reason}")
    return _offline(found, _place(found, directory), reason, checkpointed.log_start_offset)


def _load_readable(
    found: PartitionToLoad,
    directory: OpenDirectory,
    checkpointed: Checkpointed,
    warn: ReportLine,
    *,
    reopened: bool,
) -> Log:
    """Load a log. With replicas, remove a damaged file of leader epochs and make it again from the batches."""
    clean = directory.clean and not reopened
    try:
        return load_found(found, directory, checkpointed, clean=clean, failed_before=reopened)
    except CorruptionError as error:
        files = directory.data.files
        if error.file.name != LEADER_EPOCHS or not directory.replicates or files.read_only:
            raise
        warn(f"{reason_of(error)}: made again from the batches")
        try:
            files.unlink(error.file)
        except IsADirectoryError:
            files.remove_directory(error.file)
        return load_found(found, directory, checkpointed, clean=clean, failed_before=reopened)


def load_found(
    found: PartitionToLoad,
    directory: OpenDirectory,
    checkpointed: Checkpointed,
    *,
    clean: bool,
    failed_before: bool = False,
) -> Log:
    """Load a log; unless `clean`, recover it. `failed_before`: its disk failed in use. Raises StorageError, OSError."""
    data, first_dirty = directory.data, directory.writer.first_dirty_offset(found.partition)
    if not directory.below_high_watermark:
        checkpointed = checkpointed._replace(high_watermark=None)
    log = load_log(
        SegmentDirectory(data.partition_path(found.partition), data.files, data.clock),
        found.config,
        clean=clean,
        options=LoadOptions(
            checkpointed=checkpointed,
            dense=directory.replicates and not found.config.compacts and first_dirty is None,
            failed_before=failed_before or directory.failed_before,
            producer_expiration_ms=data.config.producer_id_expiration_ms,
            flusher=data.flusher,
            counts=data.counts,
        ),
    )
    log.parts.append_gate, log.checkpoint = (
        directory.reserve.append_gate,
        directory.writer.write_recovery_points,
    )
    first_dirty = adopt(log, first_dirty, data.clock).parts.first_dirty_offset
    if first_dirty is not None:
        # Everything that compaction has processed was on disk, so compaction made the holes in it.
        log.holes = tuple(hole for hole in log.holes if hole.start >= first_dirty)
    return log


def load_new(partition: TopicPartition, config: TopicConfig, directory: OpenDirectory) -> Log:
    """Load a partition whose directory was just made. Raises StorageError, OSError."""
    return load_found(PartitionToLoad(partition, config, directory), directory, Checkpointed(), clean=True)


def _missing(directories: Directories, found: PartitionToLoad) -> OfflinePartition:
    """Return an offline partition for a partition that no serving directory has."""
    failed = directories.failed
    assert failed, f"{found.partition} is missing, yet every directory was read"
    reason = "; ".join(str(directory.failure) for directory in failed)
    return _offline(found, " or ".join(_place(found, directory) for directory in failed), reason, Offset(0))


def _place(found: PartitionToLoad, directory: OpenDirectory) -> str:
    return str(directory.data.partition_path(found.partition))


def _offline(found: PartitionToLoad, place: str, reason: str, log_start_offset: Offset) -> OfflinePartition:
    return OfflinePartition(
        found.partition,
        config=found.config,
        directory=Path(place),
        reason=reason,
        log_start_offset=log_start_offset,
    )


def adopt(log: Log, checkpoint: Offset | None, clock: Clock) -> Log:
    """Set the first dirty offset of a loaded log to `checkpoint`, and return the log.

    If `checkpoint` is outside the log, the first dirty offset is the log start. The log's status shows it.
    """
    offsets = log.offsets()
    if checkpoint is not None and not offsets.log_start_offset <= checkpoint <= offsets.log_end_offset:
        _LOGGER.info(
            "%s-%d: cleaner checkpoint %d is outside offsets %d to %d; the next cleaning starts over",
            log.topic,
            log.number,
            checkpoint,
            offsets.log_start_offset,
            offsets.log_end_offset,
        )
        checkpoint = offsets.log_start_offset
    log.parts.first_dirty_offset = checkpoint
    log.parts.describe_cleaning = lambda: _cleaning_state(log, clock())
    return log


def _cleaning_state(log: Log, now: Timestamp) -> CleaningState | None:
    if not log.config.compacts:
        return None
    from topicfs.storage.duties.log_cleaner import plan_cleaning

    found = plan_cleaning(log, now)
    return CleaningState(found.first_dirty_offset, found.cleanable_ratio)
