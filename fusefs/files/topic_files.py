"""The state that the mount keeps of one topic for as long as it exists, and of all topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from topicfs.fusefs.appending.targets import Encoder, TopicTarget
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.files.partition_files import PartitionFiles, TopicState
from topicfs.fusefs.following.wakeups import Wakeups
from topicfs.fusefs.nodes.context import MountContext
from topicfs.storage.engine import Cancel, Partition, Topic
from topicfs.storage.errors import StorageError, UnknownTopicError


class TopicFiles(TopicState[TopicTarget]):
    """A topic's partitions as files, and the targets of its own log files."""

    def __init__(self, context: MountContext, topic: Topic) -> None:
        super().__init__(context, topic.name, internal=topic.internal)
        self.topic = topic
        self._partitions: dict[int, PartitionFiles] = {}
        self._partitioner = context.partitioners(topic.name)
        self._news = Wakeups(context.waiting.waker)

    def known(self, number: int) -> PartitionFiles | None:
        """The files of a partition for which somebody has asked before."""
        return self._partitions.get(number)

    def partition(self, number: int) -> PartitionFiles:
        """The files of a partition. Raises FileError (ENOENT)."""
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

    def _make_target(self, name: str, encoder: Encoder) -> TopicTarget:
        return TopicTarget(f"{self.topic.name}/{name}", self.topic, encoder, self._partitioner)

    def followed(self) -> Mapping[int, Partition]:
        """The partitions as they are now. Raises FileError (ESTALE) once the topic is deleted."""
        self.check_exists()
        return self.topic.partitions()

    def wait(self, waiter: Callable[[], None]) -> Cancel:
        """Call `waiter` once in the event loop after the next news of any partition, present or to come.

        It is called soon if nobody listened to one of them before: records that came until now were no news.
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
        """Number of times that there was news of any partition."""
        return self._news.news_count

    def refresh(self) -> None:
        """Follow the engine: partitions may have come, or been opened again; and notify the readers that follow the topic."""
        partitions = self.topic.partitions()
        for number, files in list(self._partitions.items()):
            if files.partition is not partitions.get(number):
                del self._partitions[number]
                files.delete()
        # By who follows the topic: news of a partition that has come is for them too.
        if self._news.is_awaited:
            for number in partitions:
                self.partition(number)
        self._news.signal()

    def remember(self) -> None:
        """Write down what was measured of the partitions that were looked at (blocking).

        What cannot be written is measured again another time.
        """
        for files in self._partitions.values():
            try:
                files.views.remember()
            except (StorageError, OSError) as error:
                self.context.reports.warning(files.path, f"what was measured is forgotten: {error}")

    def delete(self) -> None:
        """The topic is gone: open files end."""
        self.deleted = True
        for files in self._partitions.values():
            files.delete()
        self._news.signal()


class AllTopics:
    """The files of every topic, kept in step with the engine."""

    def __init__(self, context: MountContext, directory_id: int) -> None:
        """Make the state; `directory_id` is the node of the directory that has the topics."""
        self._context = context
        self._directory_id = directory_id
        self._topics: dict[str, TopicFiles] = {}
        self._news = Wakeups(context.waiting.waker)
        self._news.listen(self.refresh)
        self._cancel = context.engine.listen(self._news.signal)

    def names(self) -> list[str]:
        return list(self._context.engine.topics())

    def get(self, name: str) -> TopicFiles:
        """The files of a topic. Raises FileError (ENOENT)."""
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
        """Follow the engine: end what was deleted, also where a topic of the same name stands in its place."""
        topics = self._context.engine.topics()
        for name, files in list(self._topics.items()):
            present, remote = topics.get(name), self._context.engine.remote
            # A cluster's topic may be missing for a while: what was ended then does not come back to life.
            another = (
                present is not files.topic if remote else present and present.topic_id != files.topic.topic_id
            )
            if present is None or another:
                del self._topics[name]
                files.delete()
                if remote:  # Elsewhere nobody but the kernel deletes topics.
                    self._context.kernel.forget_name(self._directory_id, name)
            else:
                files.refresh()

    def close(self) -> None:
        """Listen to the engine no more, and write down what was measured (blocking)."""
        self._cancel()
        for files in self._topics.values():
            files.remember()
