"""The mount's state of one topic, and of all topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import trio

from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.partition_files import PartitionFiles, TopicState
from topicfs.fusefs.following.wakeups import Wakeups
from topicfs.fusefs.nodes.context import MountContext
from topicfs.storage.engine import Cancel, Partition, Topic
from topicfs.storage.errors import StorageError, UnknownTopicError

if TYPE_CHECKING:
    from topicfs.fusefs.appending.partitioners import Partitioner
    from topicfs.fusefs.appending.targets import Encoder, TopicTarget


class TopicFiles(TopicState["TopicTarget"]):
    """A topic's partitions as files, and the targets of the topic's own log files."""

    def __init__(self, context: MountContext, topic: Topic) -> None:
        super().__init__(context, topic.name, internal=topic.internal)
        self.topic = topic
        self._partitions: dict[int, PartitionFiles] = {}
        self._news = Wakeups(context.waiting.waker)

    def known(self, number: int) -> PartitionFiles | None:
        """Return the files of a partition that was used before; None if it was not."""
        return self._partitions.get(number)

    def partition(self, number: int) -> PartitionFiles:
        """Return the files of a partition. Raises FileError (ENOENT) if the partition does not exist."""
        files = self._partitions.get(number)
        if files is None:
            partition = self.topic.partitions().get(number)
            if partition is None or self.deleted:
                error = UnknownTopicError.of_partition(self.topic.name, number, self.topic.partitions())
                raise FileError(Refusal.NOT_FOUND, str(error).partition(": ")[2])
            files = self._partitions[number] = PartitionFiles(
                self.context, partition, internal=self.topic.internal
            )
            files.news.listen(self._news.deliver)
        return files

    @cached_property
    def _partitioner(self) -> Partitioner:
        return self.context.partitioners(self.topic.name)

    def _make_target(self, name: str, encoder: Encoder) -> TopicTarget:
        from topicfs.fusefs.appending.targets import TopicTarget

        return TopicTarget(f"{self.topic.name}/{name}", self.topic, encoder, self._partitioner)

    def followed(self) -> Mapping[int, Partition]:
        """Return the current partitions. Raises FileError (ESTALE) if the topic was deleted."""
        self.check_exists()
        return self.topic.partitions()

    def wait(self, waiter: Callable[[], None]) -> Cancel:
        """Call `waiter` once in the event loop after the next change of any partition, including partitions made later.

        If a partition had no listener before this call, a change may have been missed, so `waiter` is called soon.
        """
        numbers = () if self.deleted else self.topic.partitions()
        unheard = [number for number in numbers if number not in self._partitions]
        for number in unheard:
            self.partition(number)
        if unheard:
            trio.lowlevel.current_trio_token().run_sync_soon(self._news.deliver)
        return self._news.wait(waiter)

    @property
    def news_count(self) -> int:
        """The number of changes seen in all partitions."""
        return self._news.news_count

    def refresh(self) -> None:
        """Replace the files of reopened partitions, find added partitions, and notify readers that follow the topic."""
        partitions = self.topic.partitions()
        for number, files in list(self._partitions.items()):
            if files.partition is not partitions.get(number):
                del self._partitions[number]
                files.delete()
        # Only topics that are followed need this: their readers must see the changes of new partitions.
        if self._news.is_awaited:
            for number in partitions:
                self.partition(number)
        self._news.signal()

    def remember(self) -> None:
        """Save all used partitions' measured positions (blocking); those that cannot be saved are measured again."""
        for files in self._partitions.values():
            try:
                files.views.remember()
            except (StorageError, OSError) as error:
                self.context.reports.warning(files.path, f"measured positions were not saved: {error}")

    def delete(self) -> None:
        """End open files after the topic was deleted."""
        self.deleted = True
        for files in self._partitions.values():
            files.delete()
        self._news.signal()


class AllTopics:
    """The files of every topic, kept in step with the engine."""

    def __init__(self, context: MountContext, directory_id: int) -> None:
        """`directory_id` is the node ID of the directory that contains the topics."""
        self._context = context
        self._directory_id = directory_id
        self._topics: dict[str, TopicFiles] = {}
        self._news = Wakeups(context.waiting.waker)
        self._news.listen(self.refresh)
        self._cancel = context.engine.listen(self._news.signal)

    def get(self, name: str) -> TopicFiles:
        """Return the files of a topic. Raises FileError (ENOENT)."""
        files = self._topics.get(name)
        if files is not None and not files.deleted:
            return files
        try:
            topic = self._context.engine.topic(name)
        except UnknownTopicError:
            raise FileError(Refusal.NOT_FOUND, "no such topic") from None
        files = self._topics[name] = TopicFiles(self._context, topic)
        return files

    def refresh(self) -> None:
        """Apply changes of the engine: end the files of deleted topics, even if a new topic has the same name."""
        topics = self._context.engine.topics()
        for name, files in list(self._topics.items()):
            present, remote = topics.get(name), self._context.engine.remote
            # A topic of a cluster may be missing only for a while, but ended files cannot be used again.
            another = (
                present is not files.topic if remote else present and present.topic_id != files.topic.topic_id
            )
            if present is None or another:
                del self._topics[name]
                files.delete()
                if remote:  # In a data directory, topics are deleted only through the mount, so the kernel already knows.
                    self._context.kernel.forget_name(self._directory_id, name)
            else:
                files.refresh()

    def close(self) -> None:
        """Stop listening to the engine, and save measured positions (blocking)."""
        self._cancel()
        for files in self._topics.values():
            files.remember()
