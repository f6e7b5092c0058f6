"""The startup of an engine over data directories that hold replicas of each other's partitions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from storage.checkpoints.identifiers import new_id
from storage.config.broker import EngineConfig
from storage.config.live_settings import LiveSettings
from storage.disk.filesystem import FileSystem
from storage.disk.native import NativeFileSystem, system_clock
from storage.errors import StorageError
from storage.manager.manager import LogManager
from storage.manager.startup import Machine, open_engine
from storage.messages import WarningBook, reason_of
from storage.replicas.engine import ReplicatedEngine
from storage.replicas.members.agreement import Agreement, doubtful, newest_of
from storage.replicas.members.member import Opening, ReplicatingDirectories, ReplicatingDirectory
from storage.replicas.members.state_file import ReplicaFile, read_replica_file
from storage.replicas.rules.state import Move, ReplicaId, ReplicaState


def holds_replicas(directories: Sequence[Path], files: FileSystem | None = None) -> bool:
    """Return whether any of the directories was opened with replicas before (StorageError, OSError)."""
    disk = files or NativeFileSystem(read_only=True)
    for one in directories:
        with suppress(OSError):
            if read_replica_file(disk, one) is not None:
                return True
    return False


def open_directories(
    directories: Sequence[Path],
    *,
    read_only: bool = False,
    config: EngineConfig | None = None,
    replicated: bool = False,
    left_out: Sequence[Path] = (),
) -> LogManager | ReplicatedEngine:
    """Open data directories as they were opened before: as one engine, or as replicas, which `replicated` makes them.

    See `open_replicas` and `storage.manager.open_engine`, of which several directories hold each partition once.
    """
    several = len(directories) + len(left_out) > 1
    if replicated or (several and holds_replicas(directories)):
        return open_replicas(directories, read_only=read_only, config=config, left_out=left_out)
    return open_engine(directories, read_only=read_only, config=config)


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

    A directory that cannot be opened is away, and is tried again while the engine serves; its replicas are out of sync.
    All directories that ever replicated here must be named, in `directories` or in `left_out`: what is in one that is left
    out is not waited for, even if it may have more than the others.

    Raises DirectoryLockedError, CorruptionError, StorageError (a directory that is not named), OSError where none can be
    opened.
    """
    machine = machine or Machine()
    disk, clock = machine.files or NativeFileSystem(read_only=read_only), machine.clock or system_clock
    warnings = WarningBook(clock)
    settings = LiveSettings(config or EngineConfig())
    opening = Opening(settings=settings, files=disk, clock=clock, flushers=machine.flushers)
    members, content = _number(directories, opening, warnings, left_out)
    try:
        _open_each(members, content)
        _, having = newest_of(tuple(members))
        if settings.config.replication_factor > 1:
            content = replace(content, replicas=settings.config.replication_factor)
        agreement = Agreement(content, members, read_only=read_only, warn=warnings.add)
        engine = ReplicatedEngine(
            members, agreement, settings, warnings, clock=opening.clock, in_background=in_background
        )
        engine.begin(doubtful(content, members, having))
    except BaseException:
        for member in members:
            member.close()
        raise
    return engine


def _number(
    directories: Sequence[Path], opening: Opening, warnings: WarningBook, left_out: Sequence[Path]
) -> tuple[ReplicatingDirectories, ReplicaFile]:
    """Give each directory its number: the one it had, or the next one where it is new."""
    found = [
        ReplicatingDirectory(ReplicaId(0), path.absolute(), opening, warnings.add) for path in directories
    ]
    for member in found:
        try:
            member.look()
        except OSError as error:
            member.failure = reason_of(error)
    newest, _ = newest_of(found)
    content = newest or ReplicaFile(cluster_id=_cluster_of(found, opening) or new_id())
    by_id = {one.directory_id: number for number, one in content.directories.items()}
    by_path = {one.path: number for number, one in content.directories.items()}
    replaced: dict[ReplicaId, ReplicaId] = {}
    next_number = max(content.directories, default=0) + 1
    for member in found:
        known = by_id.get(member.directory_id) if member.directory_id else None
        if (
            known is None
            and member.copy is None
            and not member.directory_id
            and not _is_empty(member, opening)
        ):
            known = by_path.get(str(member.path))  # It cannot be looked into: it is the one that was there.
        at_path = content.directories.get(by_path.get(str(member.path), ReplicaId(0)))
        if known is None and at_path is not None:
            member.mountpoint = at_path.mountpoint
            try:
                member.check_mounted()
            except OSError:
                known = by_path[str(member.path)]
        if known is None:
            known, next_number = ReplicaId(next_number), next_number + 1
            before = by_path.get(str(member.path))
            if before is not None:
                replaced[before] = known
                warnings.add(f"{member.path}: another, empty disk; its replicas are filled again")
        member.number = known
    members = ReplicatingDirectories(found)
    _check_named(content, members, replaced, left_out)
    return members, _with_replaced(content, replaced)


def _cluster_of(members: Sequence[ReplicatingDirectory], opening: Opening) -> str | None:
    return next((found for member in members if (found := member.cluster_id(opening.files))), None)


def _is_empty(member: ReplicatingDirectory, opening: Opening) -> bool:
    """Return whether a directory can be read and has nothing in it, or is to be made."""
    try:
        return not opening.files.exists(member.path) or not opening.files.list_directory(member.path)
    except OSError:
        return False


def _check_named(
    content: ReplicaFile,
    members: ReplicatingDirectories,
    replaced: dict[ReplicaId, ReplicaId],
    left_out: Sequence[Path],
) -> None:
    absent = {str(path.absolute()) for path in left_out}
    for number, one in content.directories.items():
        if members.get(number) is None and number not in replaced and one.path not in absent:
            raise StorageError(
                f"{one.path}: holds replicas, too; name it as well, or leave it out with --without {one.path}"
            )


def _with_replaced(content: ReplicaFile, replaced: dict[ReplicaId, ReplicaId]) -> ReplicaFile:
    """Return the content with new disks in the place of others, where what they had is in another directory."""
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


def _open_each(members: ReplicatingDirectories, content: ReplicaFile) -> None:
    """Open all that can be (StorageError or OSError where none can, or one is somebody else's)."""
    problem: Exception | None = None
    for member in members:
        try:
            member.open(content.cluster_id)
        except OSError as error:
            member.failure = reason_of(error)
            problem = error
    if not members.serving:
        assert problem is not None, "no data directory was named"
        raise problem
