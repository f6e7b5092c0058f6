"""Compares the histories of replica directories, at a start and when a directory returns."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories, ReplicaDirectory
from topicfs.replication.replicas.directories.state_file import ReplicaFile
from topicfs.replication.replicas.rules.history import Runs, completed, includes
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.disk import names
from topicfs.storage.errors import ForkedReplicasError, StorageError


def newest_of(replica_dirs: Sequence[ReplicaDirectory]) -> ReplicaFile | None:
    """Return the newest agreed state; None if no directory has one.

    Raises ForkedReplicasError; StorageError for unrelated directories.
    """
    check_same_set(replica_dirs)
    newest: ReplicaDirectory | None = None
    for replica_dir in replica_dirs:
        if replica_dir.copy is None:
            continue
        if newest is None or newest.copy is None:
            newest = replica_dir
            continue
        one, other = completed_runs(newest, replica_dirs), completed_runs(replica_dir, replica_dirs)
        if includes(one, other) and includes(other, one):
            newest = max(newest, replica_dir, key=lambda each: each.copy.revision if each.copy else 0)
        elif includes(other, one):
            newest = replica_dir
        elif not includes(one, other):
            raise ForkedReplicasError(_fork(newest, replica_dir, replica_dirs))
    return None if newest is None else newest.copy


def completed_runs(replica_dir: ReplicaDirectory, replica_dirs: Iterable[ReplicaDirectory]) -> Runs:
    """Return a directory's history, without its last runs if other directories show that these never began."""
    copy = replica_dir.copy
    if copy is None:
        return ()
    numbers = {one.directory_id: number for number, one in copy.directories.items()}
    known = {
        number: other.copy.runs
        for other in replica_dirs
        if other is not replica_dir and other.copy is not None and (number := numbers.get(other.directory_id))
        # After a fork, two directories may have given the same number to different new disks.
        if (own := other.copy.directories.get(number)) and own.directory_id == other.directory_id
    }
    return completed(copy.runs, known)


def check_returned(
    replica_dir: ReplicaDirectory, content: ReplicaFile, replica_dirs: ReplicaDirectories
) -> None:
    """Raise StorageError or OSError unless a directory that returned can continue from the agreed state."""
    copy = replica_dir.copy
    check_same_set(replica_dirs)
    if copy is None:
        check_identity(replica_dir)
        if replica_dir.number in in_sync_somewhere(content):
            raise StorageError(
                f"{replica_dir}: another disk; records that only the former disk has would be lost"
            )
    elif copy.set_id != content.set_id:
        raise StorageError(f"{replica_dir}: belongs to another set of replicas")
    elif not includes(content.runs, copy.runs):
        raise ForkedReplicasError(
            _fork(replica_dir, next(iter(replica_dirs.serving), replica_dir), replica_dirs)
        )


def check_identity(replica_dir: ReplicaDirectory) -> None:
    """Raise OSError if a directory has partitions but has lost the files that identify it."""
    if replica_dir.directory_id or not replica_dir.files.exists(replica_dir.path):
        return
    if any(entry.is_directory for entry in replica_dir.files.list_directory(replica_dir.path)):
        raise FileNotFoundError(errno.ENOENT, "is missing", str(replica_dir.path / names.META_PROPERTIES))


def in_sync_somewhere(content: ReplicaFile) -> set[ReplicaId]:
    states = (state for entry in content.topics.values() for state in entry.partitions.values())
    return {one for state in states for one in state.in_sync}


def last_written(content: ReplicaFile) -> set[ReplicaId]:
    """Return the directories that may have the newest records: they are in the last run, and have replicas in sync."""
    in_sync = in_sync_somewhere(content)
    if not content.runs:
        return in_sync
    last = set(content.runs[-1].directories)
    return last & in_sync if content.topics else last


def check_same_set(replica_dirs: Iterable[ReplicaDirectory]) -> None:
    """Raise StorageError if directories belong to different sets or have the same id."""
    ids: dict[str, ReplicaDirectory] = {}
    of_set: ReplicaDirectory | None = None
    for replica_dir in replica_dirs:
        other = (
            ids.setdefault(replica_dir.directory_id, replica_dir) if replica_dir.directory_id else replica_dir
        )
        if other is not replica_dir:
            raise StorageError(
                f"{replica_dir}: is the same directory as {other}, or a copy of it; name one of them"
            )
        if replica_dir.set_id:
            of_set = of_set or replica_dir
            if of_set.set_id != replica_dir.set_id:
                raise StorageError(f"{replica_dir}: belongs to another set of replicas than {of_set}")


def _fork(one: ReplicaDirectory, other: ReplicaDirectory, replica_dirs: Iterable[ReplicaDirectory]) -> str:
    directories = shlex.quote(",".join(map(str, replica_dirs)))
    return (
        f"{one} and {other} were written to independently ({one} last from {_last(one)} on, {other} from {_last(other)} "
        f"on), so each may have records that the other lacks; see which, and keep one of them: "
        f"topicfs replicas resolve --keep {shlex.quote(str(one))} {directories}"
    )


def _last(replica_dir: ReplicaDirectory) -> str:
    runs = replica_dir.copy.runs if replica_dir.copy is not None else ()
    return datetime.fromtimestamp(runs[-1].began_ms / 1000, UTC).isoformat(" ", "seconds") if runs else "?"
