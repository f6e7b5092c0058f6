"""The agreement about all replicas, in memory and in every data directory that serves: a change is on disk before it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from types import MappingProxyType

from storage.errors import StorageError
from storage.messages import Say, reason_of
from storage.model import TopicPartition
from storage.replicas.members.member import ReplicatingDirectories, ReplicatingDirectory
from storage.replicas.members.state_file import KnownDirectory, ReplicaFile, ReplicatedTopicEntry
from storage.replicas.rules.state import ReplicaId, ReplicaState


class Agreement:
    """The content of the file, and its copies. Safe from any thread; its lock is held while it is written, and no other is taken then."""

    def __init__(
        self, content: ReplicaFile, members: ReplicatingDirectories, *, read_only: bool, warn: Say
    ) -> None:
        self._content = content
        self._members = members
        self.read_only = read_only
        self._warn = warn
        self._lock = Lock()

    @property
    def content(self) -> ReplicaFile:
        return self._content

    def state(self, partition: TopicPartition) -> ReplicaState:
        return self._content.topics[partition.topic].partitions[partition.partition]

    def put_states(self, changes: Mapping[TopicPartition, ReplicaState]) -> None:
        """Agree on other states of partitions (OSError where no directory takes it; blocking)."""

        def change(topics: dict[str, ReplicatedTopicEntry]) -> None:
            for partition, state in changes.items():
                entry = topics.get(partition.topic)
                if entry is None:
                    continue  # It was deleted meanwhile.
                partitions = {**entry.partitions, partition.partition: state}
                topics[partition.topic] = replace(entry, partitions=MappingProxyType(partitions))

        if changes:
            self._change(change)

    def take_later(self, copy: ReplicaFile, partitions: Iterable[TopicPartition]) -> None:
        """Take over what another copy says of partitions, where it has later states (OSError; blocking)."""
        changes = {}
        for partition in partitions:
            entry = copy.topics.get(partition.topic)
            theirs = None if entry is None else entry.partitions.get(partition.partition)
            if theirs is not None and theirs.version > self.state(partition).version:
                changes[partition] = theirs
        self.put_states(changes)

    def put_topic(self, name: str, entry: ReplicatedTopicEntry) -> None:
        """Add a topic, or change it (OSError; blocking)."""
        self._change(lambda topics: topics.__setitem__(name, entry))

    def put_group(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the settings of a group of readers; none removes its entry (OSError; blocking)."""
        with self._lock:
            groups = {one: given for one, given in self._content.groups.items() if one != name}
            if overrides:
                groups[name] = MappingProxyType(dict(overrides))
            self._write(replace(self._content, groups=MappingProxyType(groups)))

    def remove_topic(self, name: str) -> None:
        """Remove a topic; its id is remembered as long as a directory is away (OSError; blocking)."""
        with self._lock:
            topics = dict(self._content.topics)
            topic_id = topics.pop(name).topic_id
            away = self._is_any_away()
            deleted = (*self._content.deleted, topic_id) if away else ()
            self._write(replace(self._content, topics=MappingProxyType(topics), deleted=deleted))
            if not away and self._is_any_away():  # It failed as it was told.
                self._write(replace(self._content, deleted=(topic_id,)))

    def _is_any_away(self) -> bool:
        return any(not member.serves for member in self._members)

    def settle(self) -> None:
        """Write it to every directory that serves: one that is new has no copy, one that came back an old one (OSError)."""
        with self._lock:
            directories = {
                member.number: KnownDirectory(str(member.path), member.directory_id, member.mountpoint)
                for member in self._members
                if member.directory_id
            }
            known = {**self._content.directories, **directories}
            self._write(replace(self._content, directories=MappingProxyType(known)))

    def _change(self, change: Callable[[dict[str, ReplicatedTopicEntry]], None]) -> None:
        with self._lock:
            topics = dict(self._content.topics)
            change(topics)
            self._write(replace(self._content, topics=MappingProxyType(topics)))

    def _write(self, content: ReplicaFile) -> None:
        content = replace(content, revision=self._content.revision + 1)
        if not self.read_only:
            self._write_copies(content)
        self._content = content

    def _write_copies(self, content: ReplicaFile) -> None:
        written = 0
        error: OSError | None = None
        for member in self._members.serving:
            try:
                member.write(content)
                written += 1
            except OSError as problem:
                error = problem
                member.fail(f"failed: {reason_of(problem)}")
            except StorageError:
                pass  # Somebody else has noticed meanwhile that it failed.
        if not written:
            # A copy may have been written all the same: the next one must be newer.
            self._content = replace(self._content, revision=content.revision)
            raise error or OSError("no data directory serves")


def newest_of(
    members: Sequence[ReplicatingDirectory],
) -> tuple[ReplicaFile | None, tuple[ReplicatingDirectory, ...]]:
    """Return the newest copy, and the directories that have it."""
    copies = [member for member in members if member.copy is not None]
    if not copies:
        return None, ()
    revision = max(member.copy.revision for member in copies if member.copy)
    having = tuple(member for member in copies if member.copy and member.copy.revision == revision)
    return having[0].copy, having


def doubtful(
    content: ReplicaFile, members: ReplicatingDirectories, having: tuple[ReplicatingDirectory, ...]
) -> dict[TopicPartition, frozenset[ReplicaId]]:
    """Return the partitions that wait for directories that are away, given that only `having` say what is agreed on.

    A directory that is away and in sync may have been written to since: where all those that are here had failed before
    the last run ended. One that served to the end, and was closed in order, was told of everything; otherwise nobody can
    tell, and no leader is elected among the others.
    """
    if any(member.was_closed_in_order for member in having):
        return {}
    away = {member.number for member in members if member.copy is None and not member.serves}
    found = {}
    for name, entry in content.topics.items():
        for number, state in entry.partitions.items():
            missing = away & set(state.in_sync)
            if missing and missing != set(state.in_sync):
                found[TopicPartition(name, number)] = frozenset(missing)
    return found
