"""The duties of unopened partitions: those that have any are opened.

They are examined in turns, a few at a time, so that a hundred thousand of them cost next to nothing. The directory of
each is listed once; that shows when retention may first take something of it, and until then only that time is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from topicfs.storage.directories.directories import Directories
from topicfs.storage.duties.due_times import NOW, due_at
from topicfs.storage.model import Timestamp, TopicPartition
from topicfs.storage.topics.partitions import Unopened
from topicfs.storage.topics.topic import LogTopic

AT_A_TIME = 50
"""Number of partitions examined in one call, which takes two milliseconds."""


class UnopenedDuties:
    """Opens what has duties to be done. One call at a time (the manager's duty lock)."""

    def __init__(self, directories: Directories, topics: Callable[[], Mapping[str, LogTopic]]) -> None:
        self._directories = directories
        self._topics = topics
        self._round: Iterator[tuple[LogTopic, Unopened]] = iter(())

    def open_due(self, now: Timestamp) -> None:
        """Examine the next ones, and open those that are due (blocking)."""
        some = list(islice(self._round, AT_A_TIME))
        if not some:
            self._round = ((topic, one) for topic in self._topics().values() for one in topic.unopened())
            some = list(islice(self._round, AT_A_TIME))
        for topic, one in some:
            if one.partition is None and self._is_due(topic, one, now):
                one.open()

    def _is_due(self, topic: LogTopic, one: Unopened, now: Timestamp) -> bool:
        if one.examined_by is not topic.config:
            one.due, one.examined_by = self._due_at(topic, one), topic.config
        return one.due is not None and one.due < now

    def _due_at(self, topic: LogTopic, one: Unopened) -> Timestamp | None:
        partition = TopicPartition(topic.name, one.number)
        place = self._directories.by_partition.get(partition)
        if place is None:
            return None
        try:
            return due_at(
                place.data.partition_path(partition),
                files=place.data.files,
                config=topic.config,
                log_start_offset=place.writer.checkpointed(partition).log_start_offset,
            )
        except OSError:
            return NOW  # Opening it finds the reason.
