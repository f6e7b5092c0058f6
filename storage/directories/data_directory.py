"""A data directory with its file system, clock and settings."""

from pathlib import Path
from typing import NamedTuple

from topicfs.storage.checkpoints.atomic import prepare, put_in_place
from topicfs.storage.checkpoints.partition_metadata import (
    encode_partition_metadata,
    read_topic_id,
    write_topic_id,
)
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.counts.engine_counts import EngineCounts
from topicfs.storage.directories.contents import Contents, read_contents
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import Clock, FileSystem
from topicfs.storage.disk.names import DirectoryMark
from topicfs.storage.log.flush import Flusher
from topicfs.storage.model import TopicPartition


class DataDirectory(NamedTuple):
    """A directory that an engine owns, and the objects that all logs in it share."""

    path: Path
    files: FileSystem
    clock: Clock
    settings: LiveSettings
    flusher: Flusher
    counts: EngineCounts

    @property
    def config(self) -> EngineConfig:
        return self.settings.config

    @property
    def read_only(self) -> bool:
        return self.files.read_only

    def check(self) -> None:
        """Raise OSError unless the directory still exists: an unmounted directory is empty or missing."""
        self.files.size(self.path / names.META_PROPERTIES)

    def contents(self) -> Contents:
        """List the partition directories. Raises NotALogDirectoryError, OSError."""
        return read_contents(self.files.list_directory(self.path), self.path)

    def partition_path(self, partition: TopicPartition) -> Path:
        return self.path / names.partition_directory(partition)

    def make_partition(self, partition: TopicPartition, topic_id: str) -> None:
        """Make or complete a partition's directory and topic ID. Raises OSError.

        Call `sync` to flush the directory's name.
        """
        path = self.partition_path(partition)
        if not self.files.exists(path):
            self.files.make_directory(path)
        write_topic_id(self.files, path, topic_id)

    def begin_partition(self, partition: TopicPartition, topic_id: str, *, empty_log: bool) -> None:
        """Make a partition's directory, and prepare its topic ID; `empty_log` also makes the files of an empty log.

        Call `end_partition` afterwards. Raises OSError.
        """
        path = self.partition_path(partition)
        if not self.files.exists(path):
            self.files.make_directory(path)
        if empty_log:
            for name in names.EMPTY_LOG:
                self.files.open(path / name, create=True).close()
        if read_topic_id(self.files, path) is None:
            prepare(self.files, path / names.PARTITION_METADATA, encode_partition_metadata(topic_id))

    def end_partition(self, partition: TopicPartition, topic_id: str, *, flush: bool) -> None:
        """Write the topic ID of a partition; with `flush`, also flush the file of the ID. Raises OSError.

        Afterwards call `sync`, which flushes the name of the directory. If `flush` is False, call `sync_all` too.
        """
        path = self.partition_path(partition)
        if read_topic_id(self.files, path) is None:
            put_in_place(self.files, path / names.PARTITION_METADATA, flush=flush)
        else:
            write_topic_id(self.files, path, topic_id)

    def remove_partition(self, partition: TopicPartition) -> None:
        """Remove a partition's directory and the files in it, if it exists. Raises OSError."""
        path = self.partition_path(partition)
        if self.files.exists(path):
            self.remove_directory(path.name)

    def deleted_name(self, partition: TopicPartition) -> str:
        return names.marked_directory(partition, DirectoryMark.DELETE)

    def rename_partition(self, partition: TopicPartition, name: str) -> None:
        """Rename a partition's directory; the new name is on disk only after `sync`. Raises OSError."""
        self.files.rename(self.partition_path(partition), self.path / name)

    def remove_directory(self, name: str) -> None:
        """Remove a directory that has only plain files. Raises OSError."""
        path = self.path / name
        for entry in self.files.list_directory(path):
            self.files.unlink(path / entry.name)
        self.files.remove_directory(path)

    def sync(self) -> None:
        """Flush the directory's names to disk. Blocks. Raises OSError."""
        self.files.sync_directory(self.path)

    def sync_all(self) -> None:
        """Flush all files and names in the directory to disk. Blocks. Raises OSError."""
        self.files.sync_all(self.path)
