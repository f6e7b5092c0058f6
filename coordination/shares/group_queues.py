"""The queues of a share group, one per partition, loaded on first use. Callers must hold the group's lock."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from topicfs.coordination.records.share_group_records import GroupTopics
from topicfs.coordination.records.share_state_records import SharePartitionKey
from topicfs.coordination.shares.memberships import with_initialized
from topicfs.coordination.shares.queue import Queue, QueueServices, first_offset
from topicfs.coordination.shares.records.share_partition import SharePartition
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.engine import Cancel, Partition, Topic
from topicfs.storage.model import Isolation, TopicPartition


class GroupQueues:
    def __init__(self, group: str, services: QueueServices) -> None:
        self._group = group
        self._services = services
        self._queues: dict[TopicPartition, tuple[Queue, Cancel]] = {}
        self._by_topic: dict[str, list[Queue]] = {}
        """The queues of each topic, valid until the topics change."""
        known = services.memberships.find(group)
        self.epoch = 0 if known is None else known.epoch

    def loaded(self) -> Sequence[Queue]:
        """Return the queues that have been loaded."""
        return [queue for queue, _ in self._queues.values()]

    def find(self, partition: TopicPartition) -> Queue | None:
        """Return a loaded queue; None if it is not loaded, or its topic was deleted."""
        queue, _ = self._queues.get(partition, (None, None))
        topic = self._services.engine.topics().get(partition.topic)
        if queue is None or topic is None or decode_id(topic.topic_id) != queue.key.topic_id:
            return None
        return queue

    def of_topic(self, name: str) -> list[Queue]:
        """Return the queues of a topic; load or create missing queues. Raises UnknownTopicError, and write errors."""
        found = self._by_topic.get(name)
        if found is None:
            topic = self._services.engine.topic(name)
            self.initialize(topic)
            found = self._by_topic[name] = [
                self._queue(topic, partition) for partition in topic.partitions().values()
            ]
        return found

    def _queue(self, topic: Topic, partition: Partition) -> Queue:
        name = TopicPartition(topic.name, partition.number)
        key = self.key(topic, partition.number)
        known = self._queues.get(name)
        if known is not None:
            if known[0].partition is partition and known[0].key == key:
                return known[0]
            known[1]()
            del self._queues[name]
        queue = Queue(key, partition, self._services)
        self._queues[name] = (queue, partition.listen(self._services.records_came))
        return queue

    def key(self, topic: Topic, number: int) -> SharePartitionKey:
        return SharePartitionKey(self._group, decode_id(topic.topic_id), number)

    def initialize(self, topic: Topic) -> None:
        """Start the group in new partitions: mark them as initializing, store states, then mark them as initialized."""
        memberships, store = self._services.memberships, self._services.store
        known = memberships.find(self._group)
        topics = GroupTopics() if known is None else known.topics
        topic_id = decode_id(topic.topic_id)
        numbers = frozenset(topic.partitions())
        present = topics.initialized.get(topic_id)
        new = [one for one in sorted(numbers) if store.peek(self.key(topic, one)) is None]
        if not new and present is not None and numbers <= present.partitions:
            return
        epoch = max(self.epoch, 0 if known is None else known.epoch) + 1
        if new:
            memberships.put(self._group, epoch, _initializing(topics, topic_id, topic.name, frozenset(new)))
        settings = self._services.settings()
        isolation = Isolation(settings.share_isolation_level)
        for number in new:
            partition = topic.partitions()[number]
            reset = settings.share_auto_offset_reset
            start = first_offset(partition, reset, isolation, self._services.clock())
            store.initialize(self.key(topic, number), epoch, start)
        memberships.put(self._group, epoch, with_initialized(topics, topic_id, topic.name, numbers))
        self.epoch = epoch

    def machine(self, topic: Topic, number: int) -> SharePartition | None:
        """Return the state of a partition without writing anything; None if the group has no state there."""
        key = self.key(topic, number)
        loaded = self.find(TopicPartition(topic.name, number))
        if loaded is not None and loaded.key == key:
            return loaded.machine
        state = self._services.store.peek(key)
        if state is None or state.start_offset < 0:
            return None
        machine = SharePartition()
        machine.load(state.start_offset, state.batches)
        return machine

    def topics_changed(self) -> None:
        """Look up the topics again at the next call, because some were created, deleted or reopened."""
        self._by_topic.clear()

    def drop(self, chosen: Callable[[TopicPartition], bool]) -> None:
        """Unload the queues of the `chosen` partitions; their stored states remain."""
        for name in [one for one in self._queues if chosen(one)]:
            self._queues.pop(name)[1]()
        self._by_topic.clear()


def _initializing(
    topics: GroupTopics, topic_id: uuid.UUID, name: str, partitions: frozenset[int]
) -> GroupTopics:
    moved = with_initialized(GroupTopics({}, topics.initializing), topic_id, name, partitions)
    return GroupTopics(moved.initialized, topics.initialized, topics.deleting)
