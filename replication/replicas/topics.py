"""The topics of replica directories. Each change is first agreed on, then made in each directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from topicfs.replication.replicas.controller import ReplicaController
from topicfs.replication.replicas.directories.agreement import Agreement
from topicfs.replication.replicas.directories.engine import ReplicaLogManager
from topicfs.replication.replicas.directories.replica_directory import ReplicaDirectories
from topicfs.replication.replicas.directories.state_file import ReplicatedTopicEntry
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.replication.replicas.rules.state import ReplicaId, ReplicaState, new_state, reassigned
from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.config.live_settings import LiveSettings
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import check_new_topic, check_partitions
from topicfs.storage.engine import Partition
from topicfs.storage.errors import InvalidConfigError, StorageError
from topicfs.storage.messages import ReportLine, reason_of
from topicfs.storage.model import TopicPartition
from topicfs.storage.topics.topic import EmbeddedTopic, lenient_config, merge_overrides, own_overrides


class ReplicatedTopic(EmbeddedTopic):
    def __init__(self, name: str, topic_id: str, config: TopicConfig, overrides: Mapping[str, str]) -> None:
        super().__init__(name, topic_id=topic_id, config=config, overrides=overrides)
        self.served: Mapping[int, ReplicatedPartition] = MappingProxyType({})

    def partitions(self) -> Mapping[int, Partition]:
        return self.served

    def opened(self) -> Iterable[Partition]:
        return self.served.values()

    def put_partitions(self, changes: Mapping[int, ReplicatedPartition]) -> None:
        self.served = MappingProxyType(dict(sorted({**self.served, **changes}.items())))


class TopicTable:
    """The topics and their changes. The engine's lock serializes the calls."""

    def __init__(
        self,
        replica_dirs: ReplicaDirectories,
        agreement: Agreement,
        settings: LiveSettings,
        controller: ReplicaController,
        warn: ReportLine,
    ) -> None:
        self.topics: Mapping[str, ReplicatedTopic] = MappingProxyType({})
        """Topics by name, ascending; a snapshot."""
        self._replica_dirs = replica_dirs
        self._agreement = agreement
        self._settings = settings
        self._controller = controller
        self._warn = warn

    def begin(self) -> None:
        """Load the agreed topics. Their partitions have no leaders yet."""
        entries = self._agreement.content.topics
        self.topics = _by_name({name: self._topic(name, entry) for name, entry in entries.items()})

    def create(
        self,
        name: str,
        *,
        partitions: int | None,
        overrides: Mapping[str, str] | None,
        topic_id: str | None,
        replicas: int | None,
    ) -> ReplicatedTopic:
        """Create a topic in the agreed state and in each directory, all or none. Raises StorageError, OSError."""
        count = self._settings.config.num_partitions if partitions is None else partitions
        check_new_topic(name, self.topics)
        check_partitions(count)
        merged = {**own_overrides(name, self._settings.config.creation_overrides), **(overrides or {})}
        TopicConfig.from_overrides(merged, self._settings.config.topic_defaults)
        wanted = self._agreement.content.replicas if replicas is None else replicas
        empty = ReplicatedTopicEntry(
            topic_id or new_id(), MappingProxyType(merged), wanted, MappingProxyType({})
        )
        entry = self._placed(empty, range(count))
        self._agreement.put_topic(name, entry)
        topic = self._topic(name, entry)
        try:
            self._hold(name, entry, entry.partitions)
        except (StorageError, OSError):
            self._agreement.remove_topic(name)
            self._in_each(name, lambda engine: engine.delete_topic(name))
            raise
        self.topics = _by_name({**self.topics, name: topic})
        self._begin_partitions(topic.served.values())
        return topic

    def extend(self, topic: ReplicatedTopic, total: int) -> bool:
        """Add missing partitions up to `total`; return whether there were any. Raises StorageError, OSError."""
        check_partitions(total)
        before = self._agreement.content.topics[topic.name]
        missing = [number for number in range(total) if number not in before.partitions]
        if not missing:
            return False
        entry = self._placed(before, missing)
        self._agreement.put_topic(topic.name, entry)
        try:
            self._hold(topic.name, entry, missing)
        except (StorageError, OSError):
            self._agreement.put_topic(topic.name, before)
            self._in_each(topic.name, lambda engine: engine.drop_partitions(topic.name, missing))
            raise
        made = self._make(topic, entry, missing)
        topic.put_partitions(made)
        self._begin_partitions(made.values())
        return True

    def delete(self, topic: ReplicatedTopic) -> None:
        """Delete a topic; a directory that is away deletes it when it returns. Raises OSError."""
        partitions = topic.served.values()
        _mark(partitions, gone=True)
        try:
            self._agreement.remove_topic(topic.name)
        except (StorageError, OSError):
            _mark(partitions, gone=False)
            raise
        self.topics = _by_name({name: self.topics[name] for name in self.topics if name != topic.name})
        self._in_each(topic.name, lambda engine: engine.delete_topic(topic.name))

    def alter(self, topic: ReplicatedTopic, changes: Mapping[str, str | None]) -> None:
        """Set overrides; the value None removes an override. Raises InvalidConfigError, OSError."""
        overrides = merge_overrides(topic.overrides, changes)
        config = TopicConfig.from_overrides(overrides, self._settings.config.topic_defaults)
        entry = self._agreement.content.topics[topic.name]
        self._agreement.put_topic(topic.name, replace(entry, overrides=MappingProxyType(overrides)))
        topic.set_overrides(config, overrides)
        self._in_each(
            topic.name, lambda engine: engine.alter_config(topic.name, changes), about="settings in"
        )

    def apply_defaults(self) -> None:
        """Recompute the topics' settings after the engine's settings changed."""
        for topic in self.topics.values():
            config, _problems = lenient_config(topic.overrides, self._settings.config.topic_defaults)
            topic.set_overrides(config, topic.overrides)

    def set_replicas(self, topic: ReplicatedTopic, replicas: int) -> None:
        """Set the number of replicas, keeping leaders and replicas in sync. Raises StorageError, OSError."""
        serving = [replica_dir.number for replica_dir in self._replica_dirs.serving]
        if not 1 <= replicas <= len(serving):
            raise InvalidConfigError(
                f"{topic.name}: {replicas} replicas: 1 to {len(serving)} are possible, one in each serving data directory"
            )
        kept = {number: _ranked(one.state) for number, one in topic.served.items()}
        for number, assigned in kept.items():
            self._controller.check_removal(topic.served[number], assigned[replicas:])
        for number, assigned in kept.items():
            others = [one for one in serving if one not in assigned]
            more = place(others, self._states(), replicas - len(assigned)) if replicas > len(assigned) else ()
            self._reassign(topic.served[number], (*assigned[:replicas], *more))
        entry = self._agreement.content.topics[topic.name]
        self._agreement.put_topic(topic.name, replace(entry, replicas=replicas))

    def fill_again(self, partition: ReplicatedPartition) -> None:
        """Assign directories to replicas whose disks were replaced, after an unclean election.

        Raises StorageError, OSError.
        """
        state, known = partition.state, self._agreement.content.directories
        kept = tuple(one for one in state.assigned if one in known)
        others = [
            replica_dir.number for replica_dir in self._replica_dirs.serving if replica_dir.number not in kept
        ]
        missing = min(len(state.assigned) - len(kept), len(others))
        if missing and state.moving is None:
            self._reassign(partition, (*kept, *place(others, self._states(), missing)))

    def _states(self) -> list[ReplicaState]:
        return [
            state for entry in self._agreement.content.topics.values() for state in entry.partitions.values()
        ]

    def _reassign(self, partition: ReplicatedPartition, assigned: tuple[ReplicaId, ...]) -> None:
        name, before = partition.name, partition.state.assigned
        if assigned == before:
            return
        entry = self._agreement.content.topics[name.topic]
        for number in assigned:
            replica_dir = self._replica_dirs.get(number)
            if number not in before and replica_dir is not None and replica_dir.serves:
                replica_dir.engine.hold_partitions(name.topic, [name.partition], entry)
        with partition.lock:
            if not set(assigned) & set(partition.state.in_sync):
                raise StorageError(f"{name}: the replicas in sync have changed meanwhile; try again")
            self._controller.check_removal(partition, [one for one in before if one not in assigned])
            state = reassigned(partition.state, assigned)
            self._agreement.put_states({name: state})
            partition.state = state
            # Until this call, the leaving replicas still follow. Appends wait meanwhile.
            self._controller.begin([partition])
        for number in before:
            replica_dir = self._replica_dirs.get(number)
            if number not in assigned and replica_dir is not None and replica_dir.serves:
                replica_dir.engine.drop_partitions(name.topic, [name.partition])

    def _topic(self, name: str, entry: ReplicatedTopicEntry) -> ReplicatedTopic:
        config = TopicConfig.from_overrides(entry.overrides, self._settings.config.topic_defaults)
        topic = ReplicatedTopic(name, entry.topic_id, config, entry.overrides)
        topic.put_partitions(self._make(topic, entry, entry.partitions))
        return topic

    def _make(
        self, topic: ReplicatedTopic, entry: ReplicatedTopicEntry, numbers: Iterable[int]
    ) -> dict[int, ReplicatedPartition]:
        return {
            number: ReplicatedPartition(
                TopicPartition(topic.name, number),
                entry.partitions[number],
                lambda: topic.config,
                self._controller,
            )
            for number in numbers
        }

    def _placed(self, entry: ReplicatedTopicEntry, numbers: Iterable[int]) -> ReplicatedTopicEntry:
        """Return the entry with new partitions. New replicas are placed in the directories with the fewest replicas.

        Raises InvalidConfigError.
        """
        serving = [replica_dir.number for replica_dir in self._replica_dirs.serving]
        if not 1 <= entry.replicas <= len(serving):
            raise InvalidConfigError(
                f"{entry.replicas} replicas: 1 to {len(serving)} are possible, one in each serving data directory"
            )
        taken = [*self._states(), *entry.partitions.values()]
        partitions = dict(entry.partitions)
        for number in numbers:
            partitions[number] = new_state(place(serving, taken, entry.replicas))
            taken.append(partitions[number])
        return replace(entry, partitions=MappingProxyType(partitions))

    def _hold(self, name: str, entry: ReplicatedTopicEntry, numbers: Iterable[int]) -> None:
        """Create the directories of partitions in all online data directories. Raises StorageError, OSError."""
        wanted = set(numbers)
        for replica_dir in self._replica_dirs.serving:
            held = [one for one in wanted if replica_dir.number in entry.partitions[one].assigned]
            if held:
                replica_dir.engine.hold_partitions(name, held, entry)

    def _begin_partitions(self, partitions: Iterable[ReplicatedPartition]) -> None:
        for partition in partitions:
            with partition.lock:
                failed = partition.take_roles(self._controller.logs(partition.name))
            if failed:
                self._controller.begin([partition])

    def _in_each(self, topic: str, change: Callable[[ReplicaLogManager], None], *, about: str = "in") -> None:
        """Change a topic in each directory that has it. A directory that fails is updated when it is opened again."""
        for replica_dir in self._replica_dirs.serving:
            try:
                if topic in replica_dir.engine.topics():
                    change(replica_dir.engine)
            except (StorageError, OSError) as error:
                self._warn(f"{topic}: {about} {replica_dir}: {reason_of(error)}")


def _mark(partitions: Iterable[ReplicatedPartition], *, gone: bool) -> None:
    """Set whether the partitions' topic is deleted. First wait for changes of their replicas that are under way."""
    for partition in partitions:
        with partition.lock:
            partition.gone = gone


def _ranked(state: ReplicaState) -> tuple[ReplicaId, ...]:
    """Return the assigned replicas: the leader, then the replicas in sync, then the others."""
    return tuple(sorted(state.assigned, key=lambda one: (one != state.leader, one not in state.in_sync)))


def _by_name(topics: Mapping[str, ReplicatedTopic]) -> Mapping[str, ReplicatedTopic]:
    return MappingProxyType(dict(sorted(topics.items())))


def place(
    serving: Sequence[ReplicaId], taken: Iterable[ReplicaState], replicas: int
) -> tuple[ReplicaId, ...]:
    """Return the directories for a partition, the preferred leader's first.

    The directories that hold and lead the fewest replicas are chosen.
    """
    states = list(taken)
    held = Counter(one for state in states for one in state.assigned)
    led = Counter(state.assigned[0] for state in states)
    chosen = sorted(serving, key=lambda one: (held[one], one))[:replicas]
    return tuple(sorted(chosen, key=lambda one: (led[one], one)))
