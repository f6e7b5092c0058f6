"""The startup of an engine: it takes the ownership of its data directories, or only reads them."""

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from topicfs.storage.checkpoints.clean_shutdown import is_marked_clean, remove_mark
from topicfs.storage.checkpoints.meta_properties import has_replicas
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.directories.data_directory import DataDirectory
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.directories.identity import write_missing_meta_properties
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import Clock, FileSystem
from topicfs.storage.disk.lock import find_holder
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.errors import CorruptionError, StorageError
from topicfs.storage.log.flush import BackgroundFlusher, Flusher, NoFlusher
from topicfs.storage.manager.manager import LogManager
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import TopicPartition
from topicfs.storage.topics.assembly import MAX_OPENED_AT_START, assemble
from topicfs.storage.topics.reconciliation import finish_pending, survey
from topicfs.storage.topics.registry import RegistryCopy, TopicRegistry, read_copy
from topicfs.storage.topics.topic import LogTopic


class Machine(NamedTuple):
    """The machine on which an engine runs. For a field that is None, the engine uses this machine's own part."""

    files: FileSystem | None = None
    """The disk. Only the machine's own disk is locked. Another disk must be read-only exactly if the engine is
    read-only.
    """
    clock: Clock | None = None
    flushers: Callable[[], Flusher] | None = None
    """Makes the flusher of a directory. None: a thread flushes closed segments on the machine's own disk, but not on
    others.
    """
    failed_before: bool = False
    """True if the disk has failed since the machine was started."""
    counts: EngineCounts | None = None
    """The counters to use; None: new ones."""


M = TypeVar("M", bound=LogManager)
_Opened: TypeAlias = tuple[TopicRegistry, WarningBook, Mapping[str, LogTopic]]
"""The arguments of `LogManager` after the directories."""


def open_logs(
    kind: type[M],
    directory: Path | Sequence[Path],
    *,
    read_only: bool = False,
    config: EngineConfig | LiveSettings | None = None,
    machine: Machine | None = None,
    max_opened_at_start: int = MAX_OPENED_AT_START,
) -> M:
    """Open one or more data directories as one engine, and make missing ones if their parent exists. Blocks.

    Call this after daemonizing, because it takes the directories' locks. With `read_only` it takes no lock and
    changes nothing. If another process of this engine owns the directories, a read-only engine shows everything on
    disk; if a broker owns them, it shows the records below the checkpointed high watermarks. If there are more than
    `max_opened_at_start` partitions, those that were closed cleanly are opened on first use. `kind` is the class of
    the engine. An engine of replicas (`kind.one_of_many`) does not create its directory. A partition that cannot be
    loaded, or whose directory fails, is offline and has the reason.

    Raises DirectoryLockedError (with the owner's process ID), NotALogDirectoryError, DuplicatePartitionError,
    CorruptionError (a damaged meta.properties or settings file), StorageError (directories that do not belong
    together), OSError. After an error, only recovery may have changed anything.
    """
    machine = machine or Machine()
    disk = machine.files if machine.files is not None else NativeFileSystem(read_only=read_only)
    clock = machine.clock or system_clock
    if disk.read_only != read_only:
        raise ValueError(f"read_only={read_only} on a disk with read_only={disk.read_only}")
    paths = [path.absolute() for path in ([directory] if isinstance(directory, Path) else directory)]
    _check_different(paths)
    if not kind.one_of_many:
        _check_without_replicas(paths, disk)
    warnings = WarningBook(clock)
    settings = config if isinstance(config, LiveSettings) else LiveSettings(config or EngineConfig())
    counts = machine.counts or EngineCounts()
    make_flusher = machine.flushers or (
        BackgroundFlusher if isinstance(disk, NativeFileSystem) else NoFlusher
    )
    kept = [
        OpenDirectory(DataDirectory(path, disk, clock, settings, make_flusher(), counts), warnings.add)
        for path in paths
    ]
    for one in kept:
        one.failed_before, one.replicates = machine.failed_before, kind.one_of_many
    directories = Directories(kept, warnings.add, one_of_many=kind.one_of_many)
    if read_only:
        return kind(directories, *_look_into(directories, warnings))
    try:
        return kind(directories, *_take_over(directories, warnings, max_opened_at_start))
    except BaseException:
        for one in kept:
            one.release()
        raise


open_engine = partial(open_logs, LogManager)
"""Opens data directories like `open_logs`, with `LogManager` as the engine."""


def _check_different(paths: Sequence[Path]) -> None:
    if not paths:
        raise ValueError("an engine needs a data directory")
    if len(paths) == 1:
        return  # Resolving a path takes a system call for each of its components.
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise StorageError(f"{path}: given twice as a data directory")
        seen.add(path.resolve())


def _check_without_replicas(paths: Sequence[Path], files: FileSystem) -> None:
    """Raise StorageError if directories of a set of replicas would be opened without their set."""
    for path in paths if len(paths) > 1 or not files.read_only else ():
        with suppress(OSError):
            if has_replicas(files, path):
                raise StorageError(
                    f"{path}: has replicas of the other directories' partitions; name only one directory"
                    if files.read_only
                    else f"{path}: is one of several directories with replicas, and cannot be written to alone; name all of "
                    f"them, or: topicfs mount --replicas N {path} --without OTHER MOUNTPOINT"
                )


def _take_over(directories: Directories, warnings: WarningBook, max_opened_at_start: int) -> _Opened:
    from topicfs.storage.directories.cluster_metadata import find_cluster_metadata

    _fail_unmounted(directories)
    directories.attempt_each(_check_kind)
    if not directories.one_of_many:
        directories.attempt_each(_make)
    if isinstance(directories.files, NativeFileSystem):
        directories.attempt_each(OpenDirectory.take_lock)
    registry = _read_registry(directories)
    registry.cluster = find_cluster_metadata(directories.files, [one.data.path for one in directories.online])
    survey(directories)
    write_missing_meta_properties(directories)
    directories.attempt_each(lambda one: one.reserve.begin())
    directories.attempt_each(_remove_mark)
    finish_pending(directories, registry)
    directories.attempt_each(OpenDirectory.read_checkpoints)
    with ExitStack() as stack:
        for one in directories.online:
            stack.enter_context(one.reserve.lent_when_low())
        topics = assemble(directories, registry, warnings.add, max_opened_at_start=max_opened_at_start)
        directories.attempt_each(lambda one: _forget_missing(directories, one))
    return registry, warnings, topics


def _look_into(directories: Directories, warnings: WarningBook) -> _Opened:
    def begin(directory: OpenDirectory) -> None:
        data = directory.data
        holder = find_holder(data.path) if isinstance(data.files, NativeFileSystem) else None
        directory.clean = holder is None and is_marked_clean(data.files, data.path)
        # With a single replica, the high watermark is always the log end.
        directory.below_high_watermark = holder is not None and not holder.is_this_engine
        if holder is not None:
            owner = f"process {holder.pid}" if holder.pid else "another process"
            shown = (
                "records that it appends from now on are not shown"
                if holder.is_this_engine
                else "only records below the checkpointed high watermarks are shown"
            )
            # A command shows all records that exist now; a mount will not show later records.
            level = logging.INFO if holder.is_this_engine else logging.WARNING
            warnings.add(f"{data.path}: {owner} is writing there; {shown}", level=level)

    _fail_unmounted(directories)
    directories.attempt_each(begin)
    try:
        registry = _read_registry(directories)
    except CorruptionError as error:
        warnings.add(f"{error}; topics are shown with defaults")
        registry = TopicRegistry({}, directories.files)
    directories.attempt_each(OpenDirectory.read_checkpoints)
    return registry, warnings, assemble(directories, registry, warnings.add)


def _check_kind(directory: OpenDirectory) -> None:
    """Raise NotALogDirectoryError for a directory that is not Kafka's, before any directory is changed."""
    if directory.data.files.exists(directory.data.path):
        directory.data.contents()


def _make(directory: OpenDirectory) -> None:
    data = directory.data
    if not data.files.exists(data.path):
        try:
            data.files.make_directory(data.path, private=True)
        except FileNotFoundError:
            raise StorageError(
                f"{data.path}: its parent directory does not exist; make {data.path.parent} first"
            ) from None
        data.files.sync_directory(data.path.parent)


def _remove_mark(directory: OpenDirectory) -> None:
    directory.clean = remove_mark(directory.data.files, directory.data.path)


def _read_registry(directories: Directories) -> TopicRegistry:
    copies: dict[Path, RegistryCopy] = {}

    def read(directory: OpenDirectory) -> None:
        copies[directory.data.path] = read_copy(directory.data.path, directory.data.files)

    directories.attempt_each(read)
    registry = TopicRegistry(
        copies, directories.files, all_directories=_members(directories, copies.values())
    )
    by_path = {directory.data.path: directory for directory in directories.all}
    registry.lend = lambda path, write: by_path[path].reserve.lend(write)
    registry.continue_without = lambda path, error: directories.continues_without(by_path[path], error)
    directories.on_failure = lambda directory: registry.leave(directory.data.path)
    return registry


def _fail_unmounted(directories: Directories) -> None:
    """Mark directories with unmounted disks as failed: an empty mount point must not count as a new directory."""
    known: set[str] = set()
    for directory in directories.all:
        with suppress(OSError, CorruptionError):
            known.update(read_copy(directory.data.path, directory.data.files).directories)
    for directory in directories.all:
        data = directory.data
        if str(directory) in known and not data.files.exists(data.path / names.META_PROPERTIES):
            cause = "was a data directory and is not one now; is its disk mounted?"
            directories.fail(directory, FileNotFoundError(errno.ENOENT, cause, str(directory)))
    if not directories.online:
        raise FileNotFoundError(errno.ENOENT, "no longer a data directory", str(directories))


def _members(directories: Directories, copies: Iterable[RegistryCopy]) -> tuple[str, ...]:
    """Return the directories that the registry will list as belonging together.

    A failed directory that never served is left out.
    """
    if len(directories.all) == 1:
        return ()
    known = {path for copy in copies for path in copy.directories}
    return tuple(str(one) for one in directories.all if one.failure is None or str(one) in known)


def _forget_missing(directories: Directories, directory: OpenDirectory) -> None:
    """Drop the checkpoint lines of partitions that are not in the directory.

    Otherwise later partitions of the same names would count as flushed.
    """
    here: set[TopicPartition] = {one for one, where in directories.by_partition.items() if where is directory}
    directory.writer.forget(directory.writer.partitions() - here)
