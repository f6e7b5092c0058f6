"""Logs on their way into a data directory: copies of what another directory serves, Kafka's future replicas.

    orders-0.<32 hex digits>-future/     being copied
    orders-0/                            renamed to that when the copy takes the place of the other one

Nothing depends on a copy while it has the long name: after a kill or a loss of power it is recovered as a whole, and
copying goes on where it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from topicfs.storage.checkpoints.partition_metadata import read_topic_id, write_topic_id
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.directories import OpenDirectory
from topicfs.storage.disk import names
from topicfs.storage.disk.names import DirectoryMark, parse_partition_directory
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.log.producers import ProducerRules
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.recovery.loader import load_log
from topicfs.storage.recovery.options import LoadOptions
from topicfs.storage.segment.roll import SegmentDirectory

_DAMAGED = "damaged"


class FutureLogs:
    """The future logs of one data directory. Changed by one call at a time (the manager's lock)."""

    def __init__(self, directory: OpenDirectory) -> None:
        self._directory = directory
        self._opened: dict[TopicPartition, Log] = {}

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the future log of a partition; None where none is open."""
        return self._opened.get(partition)

    def open(
        self, partition: TopicPartition, config: TopicConfig, topic_id: str, *, beside: bool = False
    ) -> Log:
        """Return the future log of a partition: the open one, one that was left, or a new one (StorageError, OSError).

        One that went offline is loaded again, with recovery (blocking). `beside`: the partition itself is here, and served.
        """
        log = self._opened.get(partition)
        if log is not None and log.offline_reason is None:
            return log
        self._close(partition)
        data = self._directory.data
        log = load_log(
            SegmentDirectory(
                data.path / self._settle(partition, topic_id, beside=beside), data.files, data.clock
            ),
            config,
            clean=False,
            options=LoadOptions(
                failed_before=self._directory.failed_before,
                producer_rules=ProducerRules(data.config.producer_id_expiration_ms),
                flusher=data.flusher,
                counts=data.counts,
            ),
        )
        log.parts.room = self._directory.reserve.room
        log.roles.follow(Offset(0))
        self._opened[partition] = log
        return log

    def promote(self, partition: TopicPartition) -> None:
        """Close a future log and give its directory the partition's own name, on disk when this returns (OSError)."""
        log = self._opened.pop(partition)
        log.close()
        data = self._directory.data
        data.files.rename(log.directory, data.partition_path(partition))
        data.sync()

    def discard(self, partition: TopicPartition) -> None:
        """Have the future log of a partition removed, open or not (OSError)."""
        self._close(partition)
        data = self._directory.data
        for name in self._names(partition):
            deleted = data.deleted_name(partition)
            data.files.rename(data.path / name, data.path / deleted)
            self._directory.deleted.add(deleted, data.clock())
        data.sync()

    def discard_all(self, unwanted: Callable[[TopicPartition, str | None], bool]) -> None:
        """Have those removed of which `unwanted` says so, given the partition and its topic's id, if it names one (OSError)."""
        for name in self._directory.data.contents().marked.get(DirectoryMark.FUTURE, ()):
            parsed, topic_id = parse_partition_directory(name), self._topic_id(name)
            known = None if topic_id == _DAMAGED else topic_id
            if parsed is not None and unwanted(parsed.partition, known):
                self.discard(parsed.partition)

    def close(self) -> None:
        """Close all of them; what could not be flushed is recovered when it is opened again."""
        for partition in list(self._opened):
            self._close(partition)

    def _close(self, partition: TopicPartition) -> None:
        log = self._opened.pop(partition, None)
        if log is not None:
            with suppress(OSError):
                log.close()

    def _settle(self, partition: TopicPartition, topic_id: str, *, beside: bool) -> str:
        """Return the name of a partition's future directory, which is made where there is none of this topic (OSError)."""
        data = self._directory.data
        for name in self._names(partition):
            found = self._topic_id(name)
            if found == topic_id:
                return name
            if found is None:
                data.remove_directory(name)  # It was about to be made.
        name = names.marked_directory(partition, DirectoryMark.FUTURE)
        live = data.partition_path(partition)
        if not beside and data.files.exists(live) and self._topic_id(live.name) == topic_id:
            data.files.rename(live, data.path / name)  # It was renamed, and then nothing came of it.
        else:
            data.files.make_directory(data.path / name)
            write_topic_id(data.files, data.path / name, topic_id)
        data.sync()
        return name

    def _names(self, partition: TopicPartition) -> list[str]:
        marked = self._directory.data.contents().marked.get(DirectoryMark.FUTURE, ())
        parsed = {name: parse_partition_directory(name) for name in marked}
        return [name for name, found in parsed.items() if found is not None and found.partition == partition]

    def _topic_id(self, name: str) -> str | None:
        data = self._directory.data
        try:
            return read_topic_id(data.files, data.path / name)
        except CorruptionError:
            return _DAMAGED
