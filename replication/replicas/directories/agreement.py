"""The agreed state of all replicas, in memory and in each online directory. A change is on disk before it applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from types import MappingProxyType

from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories
from topicfs.replication.replicas.directories.state_file import (
    KnownDirectory,
    ReplicaFile,
    ReplicatedTopicEntry,
)
from topicfs.replication.replicas.rules.history import ReplicaRun, extended
from topicfs.replication.replicas.rules.state import ReplicaId, ReplicaState
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import reason_of
from topicfs.storage.model import TopicPartition


class Agreement:
    """Keeps the agreed state in memory and in the state files. Safe from any thread. A write takes no other lock."""

    def __init__(
        self, content: ReplicaFile, replica_dirs: ReplicaDirectories, *, read_only: bool, clock: Clock
    ) -> None:
        self.content = content
        self._clock = clock
        self._in_run: tuple[ReplicaId, ...] = ()
        """The directories that store the id of the present run; empty before the first change."""
        self._replica_dirs = replica_dirs
        self.read_only = read_only
        self._lock = Lock()

    def put_states(self, changes: Mapping[TopicPartition, ReplicaState]) -> None:
        """Agree on new states of partitions (blocking). Raises OSError if no directory could be written."""

        def change(topics: dict[str, ReplicatedTopicEntry]) -> None:
            for partition, state in changes.items():
                entry = topics.get(partition.topic)
                if entry is None:
                    continue  # The topic has been deleted.
                partitions = {**entry.partitions, partition.partition: state}
                topics[partition.topic] = replace(entry, partitions=MappingProxyType(partitions))

        if changes:
            self._change(change)

    def put_topic(self, name: str, entry: ReplicatedTopicEntry) -> None:
        """Add or change a topic (blocking). Raises OSError."""
        self.put_topics({name: entry})

    def put_topics(self, entries: Mapping[str, ReplicatedTopicEntry]) -> None:
        """Add or change topics; even without entries, write each online directory's file (blocking). Raises OSError."""
        self._change(lambda topics: topics.update(entries))

    def put_group(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace the settings of a consumer group; an empty mapping removes its entry (blocking). Raises OSError."""
        with self._lock:
            groups = {one: given for one, given in self.content.groups.items() if one != name}
            if overrides:
                groups[name] = MappingProxyType(dict(overrides))
            self._write(replace(self.content, groups=MappingProxyType(groups)))

    def remove_topic(self, name: str) -> None:
        """Remove a topic (blocking). If a directory is away, also store the topic's id as deleted. Raises OSError."""
        with self._lock:
            topics = dict(self.content.topics)
            topic_id = topics.pop(name).topic_id
            away = self._is_any_away()
            deleted = (*self.content.deleted, topic_id) if away else ()
            self._write(replace(self.content, topics=MappingProxyType(topics), deleted=deleted))
            if (
                not away and self._is_any_away()
            ):  # If a directory failed during this write, store the deleted id after all.
                self._write(replace(self.content, deleted=(topic_id,)))

    def _is_any_away(self) -> bool:
        return any(not replica_dir.serves for replica_dir in self._replica_dirs)

    def _change(self, change: Callable[[dict[str, ReplicatedTopicEntry]], None]) -> None:
        with self._lock:
            topics = dict(self.content.topics)
            change(topics)
            self._write(replace(self.content, topics=MappingProxyType(topics)))

    def _write(self, content: ReplicaFile) -> None:
        if self.read_only:
            self.content = replace(content, revision=self.content.revision + 1)
            return
        error: OSError | None = None
        serving = self._replica_dirs.serving
        while serving:
            content = self._begun(content, tuple(replica_dir.number for replica_dir in serving))
            told = []
            for replica_dir in serving:
                try:
                    replica_dir.write(content)
                    told.append(replica_dir)
                except OSError as problem:
                    error = problem
                    replica_dir.fail(f"failed: {reason_of(problem)}")
                except StorageError:
                    pass  # Another thread has just marked the directory as failed.
            if len(told) == len(serving):
                self.content = content
                return
            # The failed directory may have stored the new copy: use a higher revision.
            self.content = replace(self.content, revision=content.revision, runs=content.runs)
            serving = tuple(told)
        raise error or OSError("no data directory is online")

    def _begun(self, content: ReplicaFile, serving: tuple[ReplicaId, ...]) -> ReplicaFile:
        """Return the content to write next. If the set of online directories has changed, begin a new run."""
        directories = {
            replica_dir.number: KnownDirectory(
                str(replica_dir.path), replica_dir.directory_id, replica_dir.mountpoint
            )
            for replica_dir in self._replica_dirs.serving
        }
        runs = self.content.runs
        if serving != self._in_run:
            runs = extended(runs, ReplicaRun(new_id(), self._clock(), serving))
            self._in_run = serving
        return replace(
            content,
            revision=self.content.revision + 1,
            runs=runs,
            directories=MappingProxyType({**content.directories, **directories}),
        )
