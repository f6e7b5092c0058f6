"""A stopped broker's topics under us: the takeover.

The broker's log directory is only read. What is carried over is opened, and where the broker was not stopped in order
recovered, before this reports success. Topics keep their ids; their settings come out of the cluster's metadata log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from storage.checkpoints.clean_shutdown import is_marked_clean, take_mark
from storage.checkpoints.partition_metadata import read_topic_id
from storage.config.broker import KEEP_FOREVER
from storage.disk import names
from storage.disk.filesystem import FileSystem
from storage.disk.lock import DirectoryLock, find_holder
from storage.disk.native import NativeFileSystem
from storage.errors import DirectoryLockedError, StorageError
from storage.handover.carry import Parcel, carry
from storage.handover.checkpoint_lines import read_lines, write_lines
from storage.handover.cluster_metadata import DIRECTORY, ClusterImage, read_cluster_metadata
from storage.manager import open_engine
from storage.manager.contents import read_contents
from storage.manager.registry import TopicEntry, TopicRegistry
from storage.model import TopicPartition

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the broker's topics are."""

    log_dir: Path
    metadata_dir: Path | None = None
    """The directory that holds `__cluster_metadata-0` (metadata.log.dir); None: the log directory itself."""
    without_settings: bool = False
    """Take the topics though their settings cannot be had."""


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic in the broker's log directory."""

    name: str
    topic_id: str
    numbers: tuple[int, ...]
    settings: Mapping[str, str]


class Takeover:
    """The takeover of one log directory into one data directory."""

    def __init__(self, source: Source, data: Path, *, tell: Tell, files: FileSystem | None = None) -> None:
        self._source = source
        self._log_dir = source.log_dir.absolute()
        self._data = data.absolute()
        self._tell = tell
        self._files = files or NativeFileSystem()

    def take(self, *, link: bool = False) -> None:
        """Carry all topics over (blocking); with `link` logs that never change again become hard links.

        Raises DirectoryLockedError while the broker, or a mount of ours, runs; StorageError, OSError.
        """
        self._check_stopped()
        topics = self._find_topics()
        if not self._files.exists(self._data):
            self._files.make_directory(self._data)
        with ExitStack() as stack:
            if isinstance(self._files, NativeFileSystem):
                stack.callback(DirectoryLock(self._data).release)
            self._check_free(topics)
            # Whatever is carried over is looked through from its recovery point on, not taken on trust.
            take_mark(self._files, self._data)
            for topic in topics:
                self._carry_topic(topic, link=link)
        self._check_stopped()
        self._open(topics)

    def _check_stopped(self) -> None:
        holder = find_holder(self._log_dir) if isinstance(self._files, NativeFileSystem) else None
        if holder is not None:
            raise DirectoryLockedError(self._log_dir, holder.pid)

    # What is there.

    def _find_topics(self) -> list[TopicFound]:
        contents = read_contents(self._files.list_directory(self._log_dir), self._log_dir)
        image = self._read_image()
        found = []
        for name, numbers in contents.topics().items():
            if names.is_internal(name):
                self._tell(f"{name}: Kafka's own, left where it is")
                continue
            found.append(
                TopicFound(name, self._topic_id(name, numbers), tuple(numbers), self._settings(image, name))
            )
        if not found:
            raise StorageError(f"{self._log_dir}: no topics there to take over")
        return found

    def _read_image(self) -> ClusterImage | None:
        directory = (self._source.metadata_dir or self._log_dir).absolute() / DIRECTORY
        if self._files.exists(directory):
            return read_cluster_metadata(self._files, directory)
        if self._source.without_settings:
            return None
        raise StorageError(
            f"{directory}: not there, so the topics' settings are unknown; name the broker's metadata.log.dir with "
            f"--metadata-dir, or do without them with --without-settings"
        )

    def _topic_id(self, name: str, numbers: list[int]) -> str:
        ids = set()
        for number in numbers:
            directory = self._log_dir / names.partition_directory(TopicPartition(name, number))
            found = read_topic_id(self._files, directory)
            if found is None:
                raise StorageError(f"{directory}: no {names.PARTITION_METADATA} there")
            ids.add(found)
        if len(ids) > 1:
            raise StorageError(f"{name}: its partitions have different topic ids: {', '.join(sorted(ids))}")
        return ids.pop()

    def _settings(self, image: ClusterImage | None, name: str) -> Mapping[str, str]:
        """The topic's own; records without a limit of their own are kept, for the broker's default is not known."""
        own = image.settings.get(name, {}) if image else {}
        return {**KEEP_FOREVER, **own}

    # Carrying.

    def _check_free(self, topics: list[TopicFound]) -> None:
        """Raise StorageError before anything is changed if a topic's name is taken by another topic."""
        entries = TopicRegistry.read(self._data, self._files).entries
        for topic in topics:
            entry = entries.get(topic.name)
            if entry is not None and entry.topic_id != topic.topic_id:
                raise StorageError(
                    f"{topic.name}: {self._data} has another topic of that name; nothing is overwritten"
                )

    def _carry_topic(self, topic: TopicFound, *, link: bool) -> None:
        registry = TopicRegistry.read(self._data, self._files)
        if topic.name not in registry.entries:
            registry.put({topic.name: TopicEntry(topic.topic_id, dict(topic.settings))})
        carried = 0
        for number in topic.numbers:
            partition = TopicPartition(topic.name, number)
            directory = names.partition_directory(partition)
            lines = read_lines(self._files, self._log_dir, partition)
            parcel = Parcel(
                partition=partition,
                source=self._log_dir / directory,
                target=self._data / directory,
                topic_id=topic.topic_id,
                link=link,
                recovered=is_marked_clean(self._files, self._log_dir),
            )
            write_lines(self._files, self._data, partition, lines)
            carried += carry(self._files, parcel)
        settings = ", ".join(f"{name}={value}" for name, value in sorted(topic.settings.items()))
        self._tell(
            f"{topic.name}: {carried} of {len(topic.numbers)} partitions carried over, the others were there; "
            f"{settings}"
        )

    def _open(self, topics: list[TopicFound]) -> None:
        """Load everything, with recovery where it is due, and close it in order; raises StorageError."""
        engine = open_engine(self._data, files=self._files)
        try:
            for topic in topics:
                for number in topic.numbers:
                    partition = engine.partition(topic.name, number)
                    state = partition.status().state
                    if state != "online":
                        raise StorageError(f"{topic.name}-{number}: {state}")
                    offsets = partition.offsets()
                    self._tell(
                        f"{topic.name}-{number}: offsets {offsets.log_start_offset} to {offsets.log_end_offset}"
                    )
        finally:
            engine.close()
