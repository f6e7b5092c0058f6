"""Restarts a partition that went offline, or a directory with all of its partitions, after a repair."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from topicfs.storage.checkpoints.clean_shutdown import remove_mark
from topicfs.storage.directories.checkpoints import name_of
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.directories.identity import write_missing_meta_properties
from topicfs.storage.directories.offline_partition import loaded_logs
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.engine import Partition
from topicfs.storage.errors import StorageError
from topicfs.storage.log.life import Event
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import TopicPartition
from topicfs.storage.recovery.options import Checkpointed
from topicfs.storage.topics.assembly import find_all, make_topic, partition_to_load
from topicfs.storage.topics.loader import PartitionToLoad, load, load_found
from topicfs.storage.topics.reconciliation import finish_pending
from topicfs.storage.topics.registry import TopicRegistry
from topicfs.storage.topics.topic import LogTopic


class Restart(NamedTuple):
    directories: Directories
    registry: TopicRegistry
    warn: ReportLine

    def partition(self, topic: LogTopic, number: int) -> Log:
        """Load one partition of a serving directory again. Raises StorageError, OSError, and then changes nothing."""
        old = topic.partitions()[number]
        name = name_of(old)
        directory = self.directories.by_partition.get(name)
        if directory is None:
            raise StorageError(f"{name}: in none of the data directories {self.directories}")
        known = _retire(old, directory) if isinstance(old, Log) else directory.writer.checkpointed(name)
        log = load_found(
            PartitionToLoad(name, topic.config, directory), directory, known, clean=False, failed_before=True
        )
        topic.put_partitions({number: log})
        _supersede([old])
        return log

    def directory(self, directory: OpenDirectory, topics: Mapping[str, LogTopic]) -> dict[str, LogTopic]:
        """Load a failed directory again, as an opening does; return all topics. Blocks.

        A partition that cannot be loaded is offline, and has its own reason. Raises StorageError, OSError; the
        directory's state is then the same as before.
        """
        failure = directory.failure
        self._take_offline(directory, topics)
        try:
            self._take_ownership(directory)
            directory.failure = None
            return self._load_all(directory, topics)
        except (StorageError, OSError):
            directory.failure = failure
            self.directories.on_failure(directory)
            raise

    def _take_ownership(self, directory: OpenDirectory) -> None:
        data = directory.data
        data.check()
        data.contents()
        if isinstance(data.files, NativeFileSystem):
            directory.take_lock()
        clean = remove_mark(data.files, data.path)
        if directory.has_checkpoints:
            # The checkpoints in memory are newer than the files. Writing all of them also proves that the
            # disk works.
            directory.writer.invalidate()
            directory.clean = False
        else:
            directory.read_checkpoints()
            directory.clean = clean
        self.registry.join(data.path)

    def _load_all(self, directory: OpenDirectory, topics: Mapping[str, LogTopic]) -> dict[str, LogTopic]:
        write_missing_meta_properties(self.directories)
        self.registry.update_copies()
        finish_pending(self.directories, self.registry)
        found = find_all(self.directories, self.registry, self.warn)
        present = dict(topics)
        for name, one in found.items():
            topic = present.get(name) or make_topic(self.directories, name, one, self.warn)
            before = topic.known()
            brought: dict[int, Partition] = {}
            for number in one.numbers:
                wanted = partition_to_load(self.directories, topic, one, number)
                if wanted.directory is directory or number not in before:
                    brought[number] = self._load_again(wanted, before.get(number))
            topic.put_partitions(brought)
            _supersede(before[number] for number in brought if number in before)
            present[name] = topic
        served = {TopicPartition(name, number) for name, topic in present.items() for number in topic.served}
        directory.writer.forget(directory.writer.partitions() - (served & self._standing_in(directory)))
        by_partition = self.directories.by_partition
        opened = (partition for topic in present.values() for partition in topic.opened())
        directory.writer.write_all(one for one in opened if by_partition.get(name_of(one)) is directory)
        return present

    def _standing_in(self, directory: OpenDirectory) -> set[TopicPartition]:
        return {one for one, place in self.directories.by_partition.items() if place is directory}

    def _take_offline(self, directory: OpenDirectory, topics: Mapping[str, LogTopic]) -> None:
        """Open all partitions of a failed directory, so that partitions that nobody has used go offline too."""
        for topic, number in self._standing_in(directory):
            if topic in topics:
                topics[topic].partitions().get(number)

    def _load_again(self, wanted: PartitionToLoad, old: Partition | None) -> Partition:
        if not isinstance(old, Log):
            return load(self.directories, wanted, self.warn)
        assert wanted.directory is not None, "a log that was loaded has a data directory"
        return load(self.directories, wanted, self.warn, _retire(old, wanted.directory))


def _supersede(replaced: Iterable[Partition | None]) -> None:
    for log in loaded_logs(replaced):
        log.parts.life.note(Event.SUPERSEDE)


def _retire(old: Log, directory: OpenDirectory) -> Checkpointed:
    """Close a log that will be loaded again, and return its offsets; loading recovers what could not be written."""
    known = directory.writer.checkpointed(name_of(old))
    start, end = old.log_start_offset, old.log_end_offset
    known = known._replace(recovery_point=old.recovery_point, log_start_offset=start, reached=end)
    old.parts.life.note(Event.FAIL, "opened again")
    with suppress(OSError):
        old.close()
    return known
