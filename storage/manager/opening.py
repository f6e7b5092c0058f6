"""Opening a data directory: taking it over, or looking into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from storage.checkpoints.clean_shutdown import is_marked_clean, take_mark
from storage.checkpoints.identifiers import new_id
from storage.checkpoints.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from storage.config.broker import EngineConfig
from storage.disk.filesystem import Clock, FileSystem
from storage.disk.lock import DirectoryLock, LockHolder, find_holder
from storage.disk.names import DirectoryMark
from storage.disk.native import NativeFileSystem, system_clock
from storage.errors import CorruptionError
from storage.manager.checkpointing import CheckpointFiles, CheckpointWriter
from storage.manager.data_directory import DataDirectory
from storage.manager.doomed import DoomedDirectories
from storage.manager.loading import Found, PartitionLoader
from storage.manager.manager import Keeping, LogManager
from storage.manager.reconcile import FoundTopic, find_topics, finish_pending
from storage.manager.registry import TopicRegistry
from storage.manager.topics import LogTopic, lenient_config
from storage.manager.warnings import WarningBook
from storage.model import Timestamp, TopicPartition

Warn = Callable[[str], None]


def open_engine(
    directory: Path,
    *,
    read_only: bool = False,
    config: EngineConfig | None = None,
    files: FileSystem | None = None,
    clock: Clock | None = None,
) -> LogManager:
    """Open a data directory, or make a new one where there is none (its parent exists); blocking.

    To write is to own it: the lock is taken here, so call this after daemonizing. With `read_only` nothing is
    created or changed on disk and no lock is taken; beside a live owner only what lies below the checkpointed
    high watermarks is shown. `files` other than the machine's own disk have no lock and must fit `read_only`.

    A partition that cannot be loaded is offline, with the reason in its status; the others are served.

    Raises DirectoryLockedError (with the owner's process id), NotALogDirectoryError, CorruptionError (a
    damaged meta.properties or settings file), OSError. Nothing was changed then but what recovery may always
    do.
    """
    disk = files if files is not None else NativeFileSystem(read_only=read_only)
    if disk.read_only != read_only:
        raise ValueError(f"read_only={read_only} on a disk with read_only={disk.read_only}")
    data = DataDirectory(directory.absolute(), disk, clock or system_clock, config or EngineConfig())
    locks = isinstance(disk, NativeFileSystem)
    if read_only:
        return _look(data, find_holder(data.path) if locks else None)
    _prepare(data)
    lock = DirectoryLock(data.path) if locks else None
    try:
        return _take_over(data, lock)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _prepare(data: DataDirectory) -> None:
    """Make the directory where it is missing; refuse someone else's before anything in it is touched."""
    if not data.files.exists(data.path):
        data.files.make_directory(data.path)
        data.files.sync_directory(data.path.parent)
    data.contents()


def _take_over(data: DataDirectory, lock: DirectoryLock | None) -> LogManager:
    warnings = WarningBook()
    registry = TopicRegistry.read(data.path, data.files)
    data.contents()
    _settle_meta_properties(data)
    clean = take_mark(data.files, data.path)
    finish_pending(data, registry)
    opened = _load(data, registry, clean=clean, below_high_watermark=False, warnings=warnings)
    opened.writer.forget(opened.writer.named() - opened.partitions)
    return _manage(data, registry, opened, warnings, lock)


def _look(data: DataDirectory, holder: LockHolder | None) -> LogManager:
    warnings = WarningBook()
    if holder is not None:
        owner = f"process {holder.pid}" if holder.pid else "another process"
        warnings.add(
            f"{data.path}: {owner} is writing there; "
            "only what lies below the checkpointed high watermarks is shown"
        )
    try:
        registry = TopicRegistry.read(data.path, data.files)
    except CorruptionError as error:
        warnings.add(f"{error}; topics are shown with defaults")
        registry = TopicRegistry(data.path, data.files)
    clean = holder is None and is_marked_clean(data.files, data.path)
    opened = _load(data, registry, clean=clean, below_high_watermark=holder is not None, warnings=warnings)
    return _manage(data, registry, opened, warnings, None)


def _settle_meta_properties(data: DataDirectory) -> None:
    """Write the ids of a new directory, or add the directory id that an old one lacks."""
    present = read_meta_properties(data.files, data.path)
    if present is None:
        settled = MetaProperties.generate(node_id=data.config.node_id)
    elif present.directory_id is None and present.cluster_id is not None and present.node_id is not None:
        settled = replace(present, directory_id=new_id(), version=1)
    else:
        return
    write_meta_properties(data.files, data.path, settled, written_at=data.clock())


@dataclass(frozen=True, slots=True)
class _Opened:
    """A data directory's topics, loaded."""

    topics: dict[str, LogTopic]
    loader: PartitionLoader
    writer: CheckpointWriter
    doomed: DoomedDirectories
    partitions: set[TopicPartition]


def _load(
    data: DataDirectory,
    registry: TopicRegistry,
    *,
    clean: bool,
    below_high_watermark: bool,
    warnings: WarningBook,
) -> _Opened:
    contents = data.contents()
    checkpoints = CheckpointFiles.read(data.files, data.path, warnings.add)
    found = find_topics(data, contents, registry, warnings.add)
    loader = PartitionLoader(data, checkpoints, clean, below_high_watermark, warnings.add)
    topics, wanted = _plan_topics(data, found, warnings.add)
    loaded = loader.load_all(wanted)
    for name, topic in topics.items():
        topic.set_partitions({number: loaded[TopicPartition(name, number)] for number in found[name].numbers})
    doomed = DoomedDirectories(data, warnings.add)
    due = Timestamp(data.clock() + data.config.topic_defaults.file_delete_delay_ms)
    for name in contents.marked.get(DirectoryMark.DELETE, ()):
        doomed.add(name, due)
    for mark in (DirectoryMark.STRAY, DirectoryMark.FUTURE):
        for name in contents.marked.get(mark, ()):
            warnings.add(f"{name}: kept, but not served")
    writer = CheckpointWriter(data.path, data.files, present=checkpoints)
    return _Opened(topics, loader, writer, doomed, {one.partition for one in wanted})


def _plan_topics(
    data: DataDirectory, found: dict[str, FoundTopic], warn: Warn
) -> tuple[dict[str, LogTopic], list[Found]]:
    """Make each topic, without partitions yet, and say what to load for it."""
    topics: dict[str, LogTopic] = {}
    wanted: list[Found] = []
    for name, one in found.items():
        config, problems = lenient_config(one.entry.overrides, data.config.topic_defaults)
        for problem in problems:
            warn(f"{name}: setting passed over: {problem}")
        topics[name] = LogTopic(
            name,
            topic_id=one.entry.topic_id,
            config=config,
            overrides=one.entry.overrides,
            partitions={},
        )
        wanted.extend(
            Found(TopicPartition(name, number), config, one.refused.get(number)) for number in one.numbers
        )
    return topics, wanted


def _manage(
    data: DataDirectory,
    registry: TopicRegistry,
    opened: _Opened,
    warnings: WarningBook,
    lock: DirectoryLock | None,
) -> LogManager:
    return LogManager(
        Keeping(
            data=data,
            registry=registry,
            loader=opened.loader,
            writer=opened.writer,
            doomed=opened.doomed,
            warnings=warnings,
            lock=lock,
        ),
        opened.topics,
    )
