"""Opens data directories with replicas as one engine."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from topicfs.coordination.engine import Engine
from topicfs.replication.replicas.directories.agreement import Agreement
from topicfs.replication.replicas.directories.histories import check_identity, last_written, newest_of
from topicfs.replication.replicas.directories.replica_directory import (
    NOT_OPENED,
    Opening,
    ReplicaDirectories,
    ReplicaDirectory,
)
from topicfs.replication.replicas.directories.state_file import ReplicaFile
from topicfs.replication.replicas.engine import ReplicatedEngine
from topicfs.replication.replicas.rules.state import Move, ReplicaId, ReplicaState
from topicfs.storage import errors
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.disk.lock import find_holder
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.idempotence.registry import ProducerRegistry
from topicfs.storage.manager.startup import Machine
from topicfs.storage.messages import WarningBook, reason_of


def open_replicas(
    directories: Sequence[Path],
    *,
    read_only: bool = False,
    config: EngineConfig | None = None,
    machine: Machine | None = None,
    left_out: Sequence[Path] = (),
    in_background: bool = True,
) -> ReplicatedEngine:
    """Open data directories as one engine whose partitions have replicas in several of them (blocking).

    A directory that cannot be opened is retried later. If such a directory may have the latest records, the caller
    must name it in `left_out`, or more than half of at least three directories must be available. No directory is
    changed before it is known that all of them fit together.

    Raises ForkedReplicasError, MissingReplicasError, DirectoryLockedError, CorruptionError, StorageError, OSError.
    """
    machine = machine or Machine()
    disk, clock = machine.files or NativeFileSystem(read_only=read_only), machine.clock or system_clock
    warnings = WarningBook(clock)
    settings = LiveSettings(config or EngineConfig())
    opening = Opening(settings=settings, files=disk, clock=clock, flushers=machine.flushers)
    absent = {str(path.absolute()) for path in left_out}
    if not read_only and isinstance(disk, NativeFileSystem):
        _check_unlocked(directories)
    replica_dirs, found, content = _number(directories, opening, warnings, absent)
    if not read_only:
        _check_there(found, replica_dirs, absent, None)
        _check_enough(settings.config.replication_factor, found, replica_dirs, absent)
    try:
        _open_each(content, [one for one in replica_dirs if one.copy is not None])
        _check_there(found, replica_dirs, absent, warnings if read_only else None)
        _open_each(content, [one for one in replica_dirs if one.copy is None])
        _check_serving(replica_dirs)
        if settings.config.replication_factor > 1:
            content = replace(content, replicas=settings.config.replication_factor)
        agreement = Agreement(content, replica_dirs, read_only=read_only, clock=clock)
        engine = ReplicatedEngine(
            replica_dirs, agreement, settings, warnings, clock=opening.clock, in_background=in_background
        )
        engine.begin()
        before = {one.path for one in found.directories.values()}
        for replica_dir in replica_dirs.serving if not read_only else ():
            if replica_dir.number not in found.directories and str(replica_dir.path) in before:
                warnings.add(f"{replica_dir.path}: another, empty disk; its replicas are copied again")
    except BaseException:
        for replica_dir in replica_dirs:
            replica_dir.close()
        raise
    return engine


def _number(
    directories: Sequence[Path], opening: Opening, warnings: WarningBook, left_out: set[str]
) -> tuple[ReplicaDirectories, ReplicaFile, ReplicaFile]:
    """Number the directories; return them, the agreed state, and the same state with new disks for lost disks."""
    found = [ReplicaDirectory(ReplicaId(0), path.absolute(), opening, warnings.add) for path in directories]
    for replica_dir in found:
        _try(replica_dir, replica_dir.look)
    newest = newest_of(found)
    if newest is None:
        _check_beginning(found, left_out)
    cluster_id = next((replica_dir.cluster_id for replica_dir in found if replica_dir.cluster_id), None)
    set_id = next((replica_dir.set_id for replica_dir in found if replica_dir.set_id), None)
    content = newest or ReplicaFile(cluster_id=cluster_id or new_id(), set_id=set_id or new_id())
    by_id = {one.directory_id: number for number, one in content.directories.items()}
    by_path = {one.path: number for number, one in content.directories.items()}
    replaced: dict[ReplicaId, ReplicaId] = {}
    next_number = max(content.directories, default=0) + 1
    for replica_dir in found:
        known = by_id.get(replica_dir.directory_id) if replica_dir.directory_id else None
        if known is None and not replica_dir.directory_id and not replica_dir.is_blank():
            known = by_path.get(
                str(replica_dir.path)
            )  # Only the directory's id is missing: the path shows which directory this is.
            if known is not None and replica_dir.failure == NOT_OPENED:
                _try(replica_dir, partial(check_identity, replica_dir))
        at_path = content.directories.get(by_path.get(str(replica_dir.path), ReplicaId(0)))
        if known is None and at_path is not None:
            replica_dir.mountpoint = at_path.mountpoint
            if not _try(replica_dir, replica_dir.check_mounted):
                known = by_path[str(replica_dir.path)]
        if known is None:
            known, next_number = ReplicaId(next_number), next_number + 1
            before = by_path.get(str(replica_dir.path))
            if before is not None:
                replaced[before] = known
        replica_dir.number = known
    return ReplicaDirectories(found), content, _with_replaced(content, replaced)


def _check_beginning(replica_dirs: Sequence[ReplicaDirectory], left_out: set[str]) -> None:
    """Raise StorageError if the agreed state of a set is lost, and the user has not agreed to continue without it."""
    for replica_dir in replica_dirs:
        if left_out and replica_dir.set_id and str(replica_dir) not in left_out:
            replica_dir.failure = NOT_OPENED
        if replica_dir.failure != NOT_OPENED:
            remedy = (
                "; also name a directory of the same set that has it, or go on with the records in the logs here: "
                f"topicfs mount --replicas N {shlex.quote(str(replica_dir))} --without OTHER …"
            )
            raise errors.StorageError(
                f"{replica_dir}: {replica_dir.failure}{remedy if replica_dir.set_id else ''}"
            )


def _try(replica_dir: ReplicaDirectory, step: Callable[[], None]) -> bool:
    """Run a step for a directory. An error makes the directory unavailable. Return whether it is available."""
    try:
        step()
    except (OSError, errors.CorruptionError, errors.NotALogDirectoryError) as error:
        if isinstance(error, errors.NotALogDirectoryError) and not replica_dir.set_id:
            raise  # The user named a wrong directory.
        replica_dir.failure = reason_of(error)
    return replica_dir.failure in {None, NOT_OPENED}


def _check_unlocked(directories: Sequence[Path]) -> None:
    """Raise DirectoryLockedError if another process owns a directory: it may change files that are being read."""
    for directory in directories:
        with suppress(OSError, errors.CorruptionError):
            holder = find_holder(directory.absolute())
            if holder is not None:
                raise errors.DirectoryLockedError(directory.absolute(), holder.pid)


def _check_there(
    content: ReplicaFile, replica_dirs: ReplicaDirectories, left_out: set[str], warnings: WarningBook | None
) -> None:
    """Raise MissingReplicasError if absent directories may have later records; with `warnings`, only warn."""
    there = {one.number for one in replica_dirs if one.failure in {None, NOT_OPENED}} & set(
        content.directories
    )
    missing = [number for number in last_written(content) if number in set(content.directories) - there]
    paths = [path for number in missing if (path := content.directories[number].path) not in left_out]
    if not paths or 2 * len(there) > len(content.directories) > 2:
        return
    reasons = {
        str(one): "another disk" if one.failure in {None, NOT_OPENED} else one.failure for one in replica_dirs
    }
    places = ", ".join(f"{path} ({reasons.get(path, 'not named')})" for path in paths)
    text = f"{places} may have later records than the other directories, and is not available"
    if warnings is None:
        raise errors.MissingReplicasError(
            f"{text}; bring back its disk and name all directories, or go on without the records that only it has: "
            f"topicfs mount {' '.join(f'--without {shlex.quote(path)}' for path in paths)} … "
            "(in Spark the option without)"
        )
    warnings.add(text)


def _check_enough(
    wanted: int, content: ReplicaFile, replica_dirs: ReplicaDirectories, left_out: set[str]
) -> None:
    """Raise StorageError if `wanted` exceeds the number of directories, including absent ones."""
    paths = {one.path for one in content.directories.values()} | {str(one) for one in replica_dirs} | left_out
    if wanted > len(paths):
        raise errors.StorageError(
            f"--replicas {wanted} (default.replication.factor) needs {wanted} data directories, and only "
            f"{len(paths)} are named: {', '.join(sorted(paths))}; name more, or give --replicas {len(paths)}"
        )


def _with_replaced(content: ReplicaFile, replaced: dict[ReplicaId, ReplicaId]) -> ReplicaFile:
    """Return the state in which new disks have replaced lost disks.

    A partition whose only replicas in sync are on lost disks does not change.
    """
    if not replaced:
        return content
    topics = {}
    for name, entry in content.topics.items():
        partitions = {}
        for number, state in entry.partitions.items():
            partitions[number] = _with_others(state, replaced)
        topics[name] = replace(entry, partitions=MappingProxyType(partitions))
    directories = {number: one for number, one in content.directories.items() if number not in replaced}
    return replace(content, topics=MappingProxyType(topics), directories=MappingProxyType(directories))


def _with_others(state: ReplicaState, replaced: dict[ReplicaId, ReplicaId]) -> ReplicaState:
    in_sync = tuple(one for one in state.in_sync if one not in replaced)
    if not in_sync:
        return state
    move = state.moving
    return replace(
        state,
        assigned=tuple(replaced.get(one, one) for one in state.assigned),
        in_sync=in_sync,
        leader=state.leader if state.leader in in_sync else None,
        moving=None if move is None else Move(*(replaced.get(one, one) for one in move)),
    )


def _check_serving(replica_dirs: ReplicaDirectories) -> None:
    if not replica_dirs.serving:
        raise errors.StorageError("; ".join(f"{one}: {one.failure}" for one in replica_dirs))


def _open_each(content: ReplicaFile, wanted: Sequence[ReplicaDirectory]) -> None:
    """Open each directory that can be opened. Raises StorageError if another process owns one of them."""
    for replica_dir in wanted:
        if replica_dir.failure == NOT_OPENED and _try(replica_dir, replica_dir.make):
            _try(replica_dir, partial(replica_dir.open, content.cluster_id))


def producers_of(engine: Engine) -> ProducerRegistry:
    """Return the registry of named producers of an engine over data directories."""
    if isinstance(engine, ReplicatedEngine):
        return engine.producers
    return ProducerRegistry(
        NativeFileSystem(), lambda: [Path(one.path) for one in engine.directories() if one.offline is None]
    )
