"""Compares the histories of replica directories, at a start and when a directory returns."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from topicfs.replication.replicas.members.member import ReplicatingDirectories, ReplicatingDirectory
from topicfs.replication.replicas.members.state_file import ReplicaFile
from topicfs.replication.replicas.rules.history import Runs, completed, includes
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.disk import names
from topicfs.storage.errors import ForkedReplicasError, StorageError


def newest_of(members: Sequence[ReplicatingDirectory]) -> ReplicaFile | None:
    """Return the newest agreed state, if any (ForkedReplicasError; StorageError if they do not belong together)."""
    check_same_set(members)
    newest: ReplicatingDirectory | None = None
    for member in members:
        if member.copy is None:
            continue
        if newest is None or newest.copy is None:
            newest = member
            continue
        one, other = completed_runs(newest, members), completed_runs(member, members)
        if includes(one, other) and includes(other, one):
            newest = max(newest, member, key=lambda each: each.copy.revision if each.copy else 0)
        elif includes(other, one):
            newest = member
        elif not includes(one, other):
            raise ForkedReplicasError(_fork(newest, member, members))
    return None if newest is None else newest.copy


def completed_runs(member: ReplicatingDirectory, members: Iterable[ReplicatingDirectory]) -> Runs:
    """Return a directory's history without trailing runs that never began, as shown by the other directories."""
    copy = member.copy
    if copy is None:
        return ()
    numbers = {one.directory_id: number for number, one in copy.directories.items()}
    known = {
        number: other.copy.runs
        for other in members
        if other is not member and other.copy is not None and (number := numbers.get(other.directory_id))
        # After a fork, the same number may mean different new disks.
        if (own := other.copy.directories.get(number)) and own.directory_id == other.directory_id
    }
    return completed(copy.runs, known)


def check_returned(
    member: ReplicatingDirectory, content: ReplicaFile, members: ReplicatingDirectories
) -> None:
    """Raise StorageError or OSError unless a directory that returned can continue from the agreed state."""
    copy = member.copy
    check_same_set(members)
    if copy is None:
        check_identity(member)
        if member.number in in_sync_somewhere(content):
            raise StorageError(f"{member}: another disk; records that only the former one has would be lost")
    elif copy.set_id != content.set_id:
        raise StorageError(f"{member}: belongs to another set of replicas")
    elif not includes(content.runs, copy.runs):
        raise ForkedReplicasError(_fork(member, next(iter(members.serving), member), members))


def check_identity(member: ReplicatingDirectory) -> None:
    """Raise OSError if a directory has partitions but lost the files that identify it."""
    if member.directory_id or not member.files.exists(member.path):
        return
    if any(entry.is_directory for entry in member.files.list_directory(member.path)):
        raise FileNotFoundError(errno.ENOENT, "is missing", str(member.path / names.META_PROPERTIES))


def in_sync_somewhere(content: ReplicaFile) -> set[ReplicaId]:
    """Return the directories that have a replica in sync of any partition."""
    states = (state for entry in content.topics.values() for state in entry.partitions.values())
    return {one for state in states for one in state.in_sync}


def last_written(content: ReplicaFile) -> set[ReplicaId]:
    """Return the directories that may have newer records: those of the last run that have replicas in sync."""
    in_sync = in_sync_somewhere(content)
    if not content.runs:
        return in_sync
    last = set(content.runs[-1].directories)
    return last & in_sync if content.topics else last


def check_same_set(members: Iterable[ReplicatingDirectory]) -> None:
    """Raise StorageError for directories of different sets, or with the same id."""
    ids: dict[str, ReplicatingDirectory] = {}
    of_set: ReplicatingDirectory | None = None
    for member in members:
        other = ids.setdefault(member.directory_id, member) if member.directory_id else member
        if other is not member:
            raise StorageError(
                f"{member}: is the same directory as {other}, or a copy of it; name one of them"
            )
        if member.set_id:
            of_set = of_set or member
            if of_set.set_id != member.set_id:
                raise StorageError(f"{member}: belongs to another set of replicas than {of_set}")


def _fork(
    one: ReplicatingDirectory, other: ReplicatingDirectory, members: Iterable[ReplicatingDirectory]
) -> str:
    directories = shlex.quote(",".join(map(str, members)))
    return (
        f"{one} and {other} were written to independently ({one} last from {_last(one)} on, {other} from {_last(other)} "
        f"on), so each may have records that the other lacks; see which, and keep one of them: "
        f"topicfs replicas resolve --keep {shlex.quote(str(one))} {directories}"
    )


def _last(member: ReplicatingDirectory) -> str:
    runs = member.copy.runs if member.copy is not None else ()
    return datetime.fromtimestamp(runs[-1].began_ms / 1000, UTC).isoformat(" ", "seconds") if runs else "?"
