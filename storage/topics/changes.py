"""Changes of topics, from creation to deletion: a kill at any point leaves the old state or the new state.

A change is in the registry while it is under way, and the next opening completes it. A change that fails is undone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from topicfs.storage.checkpoints.identifiers import LAST_RESERVED_TOPIC_ID, decode_id, new_id
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.checkpoints import name_of
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.directories.offline_partition import loaded_logs
from topicfs.storage.engine import Partition
from topicfs.storage.errors import InvalidConfigError, StorageError
from topicfs.storage.log.life import Event
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Timestamp, TopicPartition
from topicfs.storage.topics.loader import collection_paused, load_new
from topicfs.storage.topics.registry import PendingChange, TopicEntry, TopicRegistry
from topicfs.storage.topics.topic import LogTopic, lenient_config, merge_overrides

Item = TypeVar("Item")
T = TypeVar("T")

MAX_SEQUENTIAL_ITEMS = 16
"""Largest number of items that are handled one after the other, without threads."""
SYNC_DISK_ABOVE = 500
"""If there are more new partitions than this, the whole disk is flushed twice, instead of two files per partition."""
SYNC_THREADS = 8
"""Number of threads that flush at the same time; a file system combines their work."""


def for_each(items: Sequence[Item], act: Callable[[Item], T]) -> list[T]:
    """Return the results of `act` for all items, in order; several threads wait for the disk. Blocks.

    While the interpreter exits, no threads are used. Raises the first error; items not begun by then are skipped.
    """
    if len(items) <= MAX_SEQUENTIAL_ITEMS or not threading.main_thread().is_alive():
        return [act(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="many") as threads:
        try:
            return list(threads.map(act, items))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


class TopicChanges:
    """Changes topics on disk. The manager's lock allows one call at a time."""

    __slots__ = ("_deleted", "directories", "progress", "registry")

    def __init__(self, directories: Directories, registry: TopicRegistry) -> None:
        self.directories, self.registry = directories, registry
        self.progress: str | None = None
        """The progress of a change that takes long: a line for status pages. Any thread may read it."""
        self._deleted: dict[str, dict[int, Partition]] = {}
        """Partitions of deleted topics, until all directories of their topic are renamed."""

    def create(
        self, name: str, *, partitions: int, overrides: Mapping[str, str], topic_id: str | None = None
    ) -> LogTopic:
        """Make a topic; the caller has checked its name. Raises InvalidConfigError, StorageError, OSError."""
        config = TopicConfig.from_overrides(overrides, self.directories.config.topic_defaults)
        left = self.registry.entries.get(name)
        if left is not None and left.pending is PendingChange.DELETE:
            if failed := self.directories.failed:
                raise StorageError(
                    f"{name}: a deleted topic of this name may be left in {failed[0]}; repair that directory first"
                )
            self._finish_deletion(name)
            left = None
        # A failed attempt that could not be undone left directories that have its topic ID.
        found_id = left.topic_id if left else None
        if topic_id is not None:
            self._check_id(name, topic_id, found_id)
        entry = TopicEntry(found_id or topic_id or new_id(), overrides)
        logs = self._make(name, entry, range(partitions), config, before=None)
        return LogTopic(name, topic_id=entry.topic_id, config=config, overrides=overrides, partitions=logs)

    def _check_id(self, name: str, topic_id: str, found_id: str | None) -> None:
        """Raise InvalidConfigError if a new topic cannot have `topic_id`. `found_id`: the ID of an unfinished creation."""
        try:
            reserved = decode_id(topic_id).int <= LAST_RESERVED_TOPIC_ID
        except ValueError as error:
            raise InvalidConfigError(f"{name}: topic id {error}") from None
        if reserved:
            raise InvalidConfigError(f"{name}: Kafka has reserved the topic id {topic_id}")
        if found_id not in (None, topic_id):
            reason = (
                f"a failed attempt to make it with the id {found_id} left directories; delete the topic first"
            )
            raise InvalidConfigError(f"{name}: topic id {topic_id}: {reason}")
        owner = next(
            (other for other, entry in self.registry.entries.items() if entry.topic_id == topic_id), name
        )
        if owner != name:
            raise InvalidConfigError(f"{name}: topic id {topic_id}: the topic {owner} has this id")

    def extend(self, topic: LogTopic, total: int) -> dict[int, Log]:
        """Make a topic's missing partitions below `total`. Raises OSError."""
        entry = self.registry.entries[topic.name]
        missing = [number for number in range(total) if number not in topic.served]
        return self._make(topic.name, entry, missing, topic.config, before=entry)

    def hold(self, topic: LogTopic, numbers: Iterable[int]) -> dict[int, Log]:
        """Make the partitions of `numbers` that the topic does not have here yet. Raises StorageError, OSError."""
        entry = self.registry.entries.get(topic.name)
        missing = sorted(set(numbers) - set(topic.served))
        held = entry or TopicEntry(topic.topic_id, topic.overrides)
        return self._make(topic.name, held, missing, topic.config, before=entry)

    def drop(self, topic: LogTopic, numbers: Iterable[int]) -> None:
        """Mark the directories of some partitions as deleted, to be removed later. Raises OSError."""
        partitions = topic.partitions()
        self._deleted[topic.name] = {number: partitions[number] for number in numbers if number in partitions}
        self._rename_all(topic.name)

    def alter(self, topic: LogTopic, changes: Mapping[str, str | None]) -> None:
        """Set overrides, or remove those whose value is None. Raises InvalidConfigError, OSError."""
        overrides = merge_overrides(topic.overrides, changes)
        config = TopicConfig.from_overrides(overrides, self.directories.config.topic_defaults)
        self.registry.put({topic.name: self.registry.entries[topic.name]._replace(overrides=overrides)})
        topic.set_overrides(config, overrides)
        for log in loaded_logs(topic.opened()):
            log.update_config(config)

    def apply_defaults(self, topics: Iterable[LogTopic], warn: ReportLine) -> None:
        """Apply changed engine settings to topics; warn of contradicting overrides, which are then ignored."""
        for topic in topics:
            config, problems = lenient_config(topic.overrides, self.directories.config.topic_defaults)
            for problem in problems:
                warn(f"{topic.name}: setting ignored: {problem}")
            topic.set_overrides(config, topic.overrides)
            for log in loaded_logs(topic.opened()):
                log.update_config(config)

    def delete(self, topic: LogTopic) -> None:
        """Mark a topic's directories as deleted; `is_deleted` is True afterwards. Raises OSError.

        Directories on a failed disk are marked when the disk serves again.
        """
        entry = self.registry.entries[topic.name]
        self.registry.put({topic.name: entry._replace(pending=PendingChange.DELETE)})
        self._deleted[topic.name] = dict(topic.partitions())
        self._finish_deletion(topic.name)

    def is_deleted(self, name: str) -> bool:
        """Return whether a deletion has begun. The topic then no longer exists, even if some of its files are left."""
        entry = self.registry.entries.get(name)
        return entry is None or entry.pending is PendingChange.DELETE

    def _make(
        self,
        name: str,
        entry: TopicEntry,
        numbers: Iterable[int],
        config: TopicConfig,
        *,
        before: TopicEntry | None,
    ) -> dict[int, Log]:
        """Make and load partitions. If that fails, restore the registry's entry `before`."""
        partitions = [TopicPartition(name, number) for number in numbers]
        if not partitions:
            return {}
        total = max(entry.partitions, partitions[-1].partition + 1)
        self.directories.check_room()
        self.registry.put({name: entry._replace(pending=PendingChange.CREATE, partitions=total)})
        made: dict[int, Log] = {}
        try:
            # Writing the registry may have used the reserve, which is only for operations that free space.
            self.directories.check_room()
            self._make_directories(partitions, entry.topic_id, config)
            with collection_paused():
                for partition in partitions:
                    self.progress = f"opening {partition} of {len(partitions)} new partitions"
                    directory = self.directories.by_partition[partition]
                    made[partition.partition] = load_new(partition, config, directory)
            for directory in self._directories_of(partitions):
                if len(partitions) > SYNC_DISK_ABOVE:
                    directory.data.sync_all()
                else:
                    directory.data.sync()
            self.registry.put({name: entry._replace(pending=PendingChange.NOTHING, partitions=total)})
        except (OSError, StorageError):
            self._undo(partitions, made, before)
            raise
        finally:
            self.progress = None
        return made

    def _make_directories(self, partitions: list[TopicPartition], topic_id: str, config: TopicConfig) -> None:
        """Make all directories, then flush them in parallel; if there are many, flush the whole disk twice instead."""
        flush_each = len(partitions) <= SYNC_DISK_ABOVE
        empty_logs = not flush_each and not config.preallocate
        for partition in partitions:
            self.progress = f"making {partition} of {len(partitions)} new partitions"
            self._choose(partition).data.begin_partition(partition, topic_id, empty_log=empty_logs)

        def end(partition: TopicPartition) -> None:
            self.progress = f"flushing {partition} of {len(partitions)} new partitions"
            data = self.directories.by_partition[partition].data
            data.end_partition(partition, topic_id, flush=flush_each)

        if flush_each:
            for_each(partitions, end)
            return
        for directory in self._directories_of(partitions):
            directory.data.sync_all()
        for partition in partitions:
            end(partition)

    def _directories_of(self, partitions: Iterable[TopicPartition]) -> set[OpenDirectory]:
        return {self.directories.by_partition[partition] for partition in partitions}

    def _choose(self, partition: TopicPartition) -> OpenDirectory:
        """Return the directory for a new partition.

        If a failed attempt put the partition into a directory, return that directory; otherwise the one with the
        fewest partitions.
        """
        directories = self.directories
        left = (
            one for one in directories.online if one.data.files.exists(one.data.partition_path(partition))
        )
        directory = next(left, None) or directories.choose()
        directories.place(partition, directory)
        return directory

    def _undo(
        self, partitions: list[TopicPartition], made: Mapping[int, Log], before: TopicEntry | None
    ) -> None:
        """Remove the partitions that were made. If the disk refuses this now, the next opening removes them."""
        by_partition = self.directories.by_partition
        placed = {partition: by_partition[partition] for partition in partitions if partition in by_partition}
        self.directories.forget(partitions)
        with suppress(OSError):
            for log in made.values():
                log.parts.life.note(Event.DELETE, "its creation failed")
                log.close()
            for partition, directory in placed.items():
                directory.data.remove_partition(partition)
            self.registry.put({partitions[0].topic: before})

    def _finish_deletion(self, name: str) -> None:
        gone = self._rename_all(name)
        # A later topic of this name must not find recovery points or start offsets of this topic. The new
        # names need no flush of their own: until the end, the registry on the same disk lists them for
        # deletion.
        self.directories.attempt_each(
            lambda directory: directory.writer.forget(
                gone | {one for one in directory.writer.partitions() if one.topic == name}
            )
        )
        if not self.directories.failed:
            self.registry.put({name: None})

    def _rename_all(self, name: str) -> set[TopicPartition]:
        """Mark the directories of partitions that are being deleted, by renaming them; return the partitions."""
        partitions = self._deleted.get(name, {})
        now = self.directories.clock()
        gone = {TopicPartition(name, number) for number in partitions}
        # Before the first rename: after a failure no log may accept records, and a caller that finds the
        # files renamed must be able to learn the reason.
        for log in loaded_logs(partitions.values()):
            log.parts.life.note(Event.DELETE, "the topic was deleted")
        for number, partition in list(partitions.items()):
            directory = self.directories.by_partition.get(name_of(partition))
            if directory is None or directory.failure is not None:
                _close(partition)
            else:
                due = Timestamp(now + partition.config.file_delete_delay_ms)
                deleted_name = directory.reserve.lend(partial(_rename_deleted, partition, directory))
                closing = [partition.close_files] if isinstance(partition, Log) else []
                directory.deleted.add(deleted_name, due, *closing)
            del partitions[number]
        self.directories.attempt_each(lambda directory: directory.writer.forget(gone))
        self.directories.forget(gone)
        self._deleted.pop(name, None)
        return gone


def _close(partition: Partition) -> None:
    """Close a deleted partition whose directory cannot be renamed now."""
    if isinstance(partition, Log):
        with suppress(OSError):
            partition.close()


def _rename_deleted(partition: Partition, directory: OpenDirectory) -> str:
    """Mark a partition's directory as deleted by renaming it; return the new name."""
    name = directory.data.deleted_name(name_of(partition))
    if isinstance(partition, Log):
        partition.rename(directory.data.path / name)
        partition.close()
    else:
        directory.data.rename_partition(name_of(partition), name)
    return name
