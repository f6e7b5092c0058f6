"""Making, extending, altering and deleting topics: a kill at any point leaves the old state or the new.

Each change writes its intention into the registry first and takes it out last (see `registry`); opening
finishes what is found there. A change that fails is taken back, as far as the disk lets it, before its error
is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from storage.checkpoints.identifiers import new_id
from storage.config.topic import TopicConfig
from storage.engine import Partition
from storage.errors import StorageError
from storage.log.log import Log
from storage.manager.checkpointing import CheckpointWriter, name_of
from storage.manager.data_directory import DataDirectory
from storage.manager.doomed import DoomedDirectories
from storage.manager.loading import PartitionLoader
from storage.manager.registry import Pending, TopicEntry, TopicRegistry
from storage.manager.topics import LogTopic, merge_overrides
from storage.model import Timestamp, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """Changes topics on disk. One call at a time (the manager's lock)."""

    data: DataDirectory
    registry: TopicRegistry
    loader: PartitionLoader
    writer: CheckpointWriter
    doomed: DoomedDirectories
    _dying: dict[str, dict[int, Partition]] = field(default_factory=dict)
    """Partitions of deleted topics whose directories are not all renamed yet."""

    def create(self, name: str, *, partitions: int, overrides: Mapping[str, str]) -> LogTopic:
        """Make a topic whose name was checked (InvalidConfigError, OSError)."""
        config = TopicConfig.from_overrides(overrides, self.data.config.topic_defaults)
        left = self.registry.entries.get(name)
        if left is not None and left.pending is Pending.DELETE:
            self._finish_deletion(name)
            left = None
        # A failed attempt that could not be taken back left directories with its id.
        entry = TopicEntry(left.topic_id if left else new_id(), overrides)
        logs = self._make(name, entry, range(partitions), config, before=None)
        return LogTopic(name, topic_id=entry.topic_id, config=config, overrides=overrides, partitions=logs)

    def extend(self, topic: LogTopic, total: int) -> dict[int, Log]:
        """Make the partitions that a topic lacks up to `total` (OSError)."""
        entry = self.registry.entries[topic.name]
        missing = [number for number in range(total) if number not in topic.partitions()]
        return self._make(topic.name, entry, missing, topic.config, before=entry)

    def alter(self, topic: LogTopic, changes: Mapping[str, str | None]) -> None:
        """Set or, with None, remove overrides (InvalidConfigError, OSError)."""
        overrides = merge_overrides(topic.overrides, changes)
        config = TopicConfig.from_overrides(overrides, self.data.config.topic_defaults)
        self.registry.put({topic.name: replace(self.registry.entries[topic.name], overrides=overrides)})
        topic.set_overrides(config, overrides)
        for partition in topic.partitions().values():
            if isinstance(partition, Log):
                partition.update_config(config)

    def delete(self, topic: LogTopic) -> None:
        """Rename a topic's directories away, to be removed later (OSError; see `is_deleted` then)."""
        entry = self.registry.entries[topic.name]
        self.registry.put({topic.name: replace(entry, pending=Pending.DELETE)})
        self._dying[topic.name] = dict(topic.partitions())
        self._finish_deletion(topic.name)

    def is_deleted(self, name: str) -> bool:
        """Whether a deletion has begun, so that the topic is gone though something of it may be left."""
        entry = self.registry.entries.get(name)
        return entry is None or entry.pending is Pending.DELETE

    def _make(
        self,
        name: str,
        entry: TopicEntry,
        numbers: Iterable[int],
        config: TopicConfig,
        *,
        before: TopicEntry | None,
    ) -> dict[int, Log]:
        """Make and load partitions; `before` is the entry to go back to on failure."""
        partitions = [TopicPartition(name, number) for number in numbers]
        if not partitions:
            return {}
        total = partitions[-1].partition + 1
        self.registry.put({name: replace(entry, pending=Pending.CREATE, partitions=total)})
        made: dict[int, Log] = {}
        try:
            for partition in partitions:
                self.data.make_partition(partition, entry.topic_id)
                made[partition.partition] = self.loader.load_new(partition, config)
            self.data.sync()
            self.registry.put({name: entry})
        except (OSError, StorageError):
            self._unmake(partitions, made, before)
            raise
        return made

    def _unmake(
        self, partitions: list[TopicPartition], made: Mapping[int, Log], before: TopicEntry | None
    ) -> None:
        """Take back what was made. What the disk refuses now is finished at the next opening."""
        with suppress(OSError):
            for log in made.values():
                log.retire("its creation failed")
                log.close()
            for partition in partitions:
                self.data.unmake_partition(partition)
            self.registry.put({partitions[0].topic: before})

    def _finish_deletion(self, name: str) -> None:
        dying = self._dying.get(name, {})
        now = self.data.clock()
        gone = {TopicPartition(name, number) for number in dying}
        for number, partition in list(dying.items()):
            due = Timestamp(now + partition.config.file_delete_delay_ms)
            self.doomed.add(self._doom(partition), due)
            del dying[number]
        self.data.sync()
        # A later topic of this name must not find recovery points or start offsets of this one.
        self.writer.forget(gone | {one for one in self.writer.named() if one.topic == name})
        self.registry.put({name: None})
        self._dying.pop(name, None)

    def _doom(self, partition: Partition) -> str:
        """Rename a partition's directory away; its new name."""
        name = self.data.deleted_name(name_of(partition))
        if isinstance(partition, Log):
            # Offline first: whoever stumbles over the renamed files can tell why.
            partition.retire("the topic was deleted")
            partition.rename(self.data.path / name)
            partition.close()
        else:
            self.data.rename_partition(name_of(partition), name)
        return name
