"""One share group with its sessions. One lock guards the group."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import NamedTuple

from topicfs.coordination.records.share_state_records import SharePartitionKey
from topicfs.coordination.share_groups import (
    Acknowledgement,
    InFlight,
    Leased,
    QueuePosition,
    RecordName,
    Rejected,
    ShareMember,
)
from topicfs.coordination.shares.group_queues import GroupQueues
from topicfs.coordination.shares.journal import QueueJournal, RejectedKey, RejectedRecord
from topicfs.coordination.shares.memberships import Memberships, without_topics
from topicfs.coordination.shares.queue import GivenUp, Queue, QueueServices
from topicfs.coordination.shares.records.share_partition import HeldRecords
from topicfs.coordination.shares.state.store import StateStore
from topicfs.storage.checkpoints.identifiers import decode_id, new_id
from topicfs.storage.config.listing import ShownSetting, list_group
from topicfs.storage.config.share_group import SHARE_GROUP_SETTINGS, ShareGroupSettings
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Listeners, LogEngine, Partition, Topic
from topicfs.storage.errors import (
    GroupExistsError,
    GroupFullError,
    GroupNotEmptyError,
    InvalidConfigError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ReadOnlyError,
    RecordNotHeldError,
    SessionClosedError,
    StorageError,
    UnknownGroupError,
    UnknownTopicError,
)
from topicfs.storage.model import Isolation, Offset, Timestamp, TopicPartition


class QueueSession:
    """A member of a group, with the records that it holds. The group does the work, under its lock."""

    def __init__(
        self, group: QueueGroup, member_id: str, topics: tuple[str, ...], holder: str, since: Timestamp
    ) -> None:
        self._group = group
        self.member_id = member_id
        """The member's id, in Kafka's format."""
        self.topics = topics
        """The topics whose records the session takes."""
        self.holder = holder
        self.since = since
        self.leases: dict[RecordName, Leased] = {}
        """The held records, the oldest lease first. Only the group adds and removes records."""
        self.listeners = Listeners()
        self.is_closed = False

    def take(self) -> Leased | None:
        """Lease the next record to this session; None if there is none now.

        Records that other sessions gave back come first. A record that was delivered often is leased alone, because it
        may crash its readers (kafka-coordinators.md#poison-records). Raises SessionClosedError, UnknownTopicError,
        CorruptionError (the next call skips the batch), PartitionOfflineError, ReadOnlyError, OSError.
        """
        taken = self.take_some(1)
        return taken[0] if taken else None

    def take_some(self, most: int) -> Sequence[Leased]:
        """Lease up to `most` adjacent records of a partition; empty if there are none. Raises like `take`."""
        self._check_open()
        return self._group.take(self, most)

    def acknowledge(self, words: Mapping[RecordName, Acknowledgement]) -> None:
        """Acknowledge records, durably on return. After OSError or StorageError, the session still holds them.

        Raises RecordNotHeldError if the session does not hold a record; then no record of its partition changes.
        """
        self._check_open()
        self._group.acknowledge(self, words)

    def held(self) -> Sequence[Leased]:
        """Return the records that the session holds, the oldest lease first. Never waits."""
        return list(self.leases.values())

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when `take` may find a record; return a function that cancels this.

        The listener may be called from any thread and must return quickly.
        """
        return self.listeners.add(listener)

    def close(self) -> None:
        """Give back all held records, and leave the group. Idempotent; raises no error."""
        self._group.leave(self)

    def as_member(self) -> ShareMember:
        return ShareMember(self.member_id, self.holder, self.topics, self.since, len(self.leases))

    def _check_open(self) -> None:
        if self.is_closed:
            raise SessionClosedError(f"group {self._group.name}: the session was closed")


MAX_SHARE_MEMBERS = 200
"""Kafka's default of group.share.max.size."""


class GroupServices(NamedTuple):
    """The services that all groups of an engine share."""

    engine: LogEngine
    store: StateStore
    memberships: Memberships
    journal: QueueJournal
    journal_lock: RLock
    clock: Clock


class QueueGroup:
    """A share group: its sessions share the records of topics."""

    def __init__(self, name: str, services: GroupServices) -> None:
        self.name = name
        self._services = services
        self._lock = RLock()
        self._sessions: dict[str, QueueSession] = {}
        self._turn = 0
        self._is_deleted = False
        self._overrides = dict(services.journal.settings.get(name, {}))
        self.settings = _lenient_settings(self._overrides)
        needed = QueueServices(
            services.engine,
            services.store,
            services.memberships,
            services.clock,
            lambda: self.settings,
            self._note_given_up,
            self._notify,
        )
        self._queues = GroupQueues(name, needed)

    # Queries.

    def listed_settings(self) -> Sequence[ShownSetting]:
        """Return every setting, and the source of its value. Never waits."""
        return list_group(SHARE_GROUP_SETTINGS, self.settings, self._overrides)

    @property
    def state(self) -> str:
        """`Empty`, `Stable` or `Dead`, as Kafka's tools print it. Never waits."""
        return "Stable" if self._sessions else "Empty"

    @property
    def epoch(self) -> int:
        """The group's epoch, which rises when a session opens or closes, or the topics change. Never waits."""
        return self._queues.epoch

    def topics(self) -> Sequence[str]:
        """Return the names of the topics in which the group has a state. Never waits."""
        known = self._services.memberships.find(self.name)
        present = self._services.engine.topics()
        return sorted(
            one.name
            for topic_id, one in ({} if known is None else known.topics.initialized).items()
            if one.name in present and decode_id(present[one.name].topic_id) == topic_id
        )

    def members(self) -> Sequence[ShareMember]:
        """Return the open sessions, the oldest first. Never waits."""
        return [one.as_member() for one in list(self._sessions.values())]

    # Sessions.

    def open(self, topics: Sequence[str], *, holder: str) -> QueueSession:
        """Open a session over topics; a group's first session creates the group.

        `holder` describes the session to users, for example by its program and process. Raises UnknownTopicError,
        PolicyViolationError (an internal topic), GroupExistsError (a consumer group has that name), GroupFullError
        (200 members), UnknownGroupError (deleted since `group` returned it), ReadOnlyError, OSError.
        """
        with self._lock:
            self._check_may_join()
            wanted = tuple(dict.fromkeys(topics))
            self._begin(wanted)
            member_id = new_id()
            session = QueueSession(self, member_id, wanted, holder, self._services.clock())
            self._sessions[member_id] = session
            self._queues.epoch += 1
        return session

    def _check_may_join(self) -> None:
        if self._is_deleted:
            raise UnknownGroupError(f"{self.name}: no such group")
        if self._services.engine.read_only:
            raise ReadOnlyError(f"group {self.name}: the engine was opened read-only; nobody can join")
        if self._services.memberships.is_other(self.name):
            raise GroupExistsError(
                f"group {self.name}: is a consumer group; choose another name for the queue"
            )
        if len(self._sessions) >= MAX_SHARE_MEMBERS:
            raise GroupFullError(f"group {self.name}: has {MAX_SHARE_MEMBERS} members, and no more may join")

    def _begin(self, topics: Sequence[str]) -> None:
        """Create the group's state in each partition of the topics, so that the start offsets survive a crash."""
        for name in topics:
            topic = self._services.engine.topic(name)
            if topic.internal:
                raise PolicyViolationError(f"{name}: an internal topic cannot be a queue")
            self._queues.of_topic(name)

    def leave(self, session: QueueSession) -> None:
        with self._lock:
            if session.is_closed:
                return
            session.is_closed = True
            now = self._services.clock()
            for queue in self._queues.loaded():
                with suppress(StorageError, OSError):
                    queue.release(session.member_id, now)
            session.leases.clear()
            self._sessions.pop(session.member_id, None)
            self._queues.epoch += 1
        session.listeners.notify()
        self._notify()

    def end_sessions(self) -> None:
        """Close every session before the engine closes."""
        for session in list(self._sessions.values()):
            self.leave(session)

    # Records.

    def take(self, session: QueueSession, most: int) -> Sequence[Leased]:
        ended = False
        try:
            with self._lock:
                now = self._services.clock()
                ended = self._expire(now)
                queues = [queue for topic in session.topics for queue in self._queues.of_topic(topic)]
                self._turn += 1
                for at in range(len(queues)):
                    queue = queues[(self._turn + at) % len(queues)]
                    leased = queue.take(session.member_id, most, now)
                    if leased:
                        session.leases.update((one.record_name, one) for one in leased)
                        return leased
                return ()
        finally:
            if ended:
                self._notify()

    def acknowledge(self, session: QueueSession, words: Mapping[RecordName, Acknowledgement]) -> None:
        by_partition: dict[TopicPartition, dict[Offset, Acknowledgement]] = defaultdict(dict)
        for record_name, word in words.items():
            by_partition[record_name.topic_partition][record_name.offset] = word
        freed = False
        try:
            with self._lock:
                now = self._services.clock()
                freed = self._expire(now)
                for partition, some in by_partition.items():
                    self._acknowledge(session.member_id, partition, some, now)
                    freed = freed or Acknowledgement.RELEASE in some.values()
        finally:
            if freed:
                self._notify()

    def _acknowledge(
        self,
        member_id: str,
        partition: TopicPartition,
        words: Mapping[Offset, Acknowledgement],
        now: Timestamp,
    ) -> None:
        queue = self._queues.find(partition)
        if queue is None:
            raise RecordNotHeldError(f"group {self.name}: nobody holds a record of {partition}")
        queue.acknowledge(member_id, words, now)
        session = self._sessions.get(member_id)
        lease_end = Timestamp(now + self.settings.share_record_lock_duration_ms)
        for offset, word in words.items():
            record_name = RecordName(*partition, offset)
            if session is not None:
                leased = session.leases.pop(record_name, None)
                if leased is not None and word is Acknowledgement.RENEW:
                    session.leases[record_name] = replace(leased, lease_end=lease_end)
        accepted = [offset for offset, word in words.items() if word is Acknowledgement.ACCEPT]
        with self._services.journal_lock:
            self._services.journal.forget([RejectedKey(*queue.key, offset) for offset in accepted])

    def acknowledge_for_holder(self, record_name: RecordName, word: Acknowledgement) -> None:
        """Acknowledge a held record for its holder. Raises RecordNotHeldError if nobody holds it."""
        with self._lock:
            found = self._queues.find(record_name.topic_partition)
            held = None if found is None else found.machine.holder(record_name.offset)
            if held is None:
                raise RecordNotHeldError(f"{record_name}: nobody holds it in group {self.name}")
            self._acknowledge(
                held.member, record_name.topic_partition, {record_name.offset: word}, self._services.clock()
            )
        self._notify()

    def expire(self, now: Timestamp) -> None:
        """End overdue leases, and notify waiting sessions. The engine calls this regularly."""
        with self._lock:
            ended = self._expire(now)
        if ended:
            self._notify()

    def _expire(self, now: Timestamp) -> bool:
        ended = False
        for queue in self._queues.loaded():
            for offset, member_id in queue.expire(now):
                ended = True
                session = self._sessions.get(member_id)
                if session is not None:
                    session.leases.pop(RecordName(*queue.name, offset), None)
        return ended

    def _note_given_up(self, queue: Queue, records: Sequence[GivenUp]) -> None:
        now = self._services.clock()
        noted = {}
        for one in records:
            session = self._sessions.get(one.member_id)
            holder = "" if session is None else session.holder
            key = RejectedKey(*queue.key, one.offset)
            noted[key] = RejectedRecord(queue.name.topic, now, one.by, one.deliveries, holder)
        with self._services.journal_lock:
            self._services.journal.reject(noted)

    def topics_changed(self) -> None:
        """Look up the topics again at the next call, because some were created, deleted or reopened."""
        with self._lock:
            self._queues.topics_changed()
        self._notify()

    @property
    def _isolation(self) -> Isolation:
        return Isolation(self.settings.share_isolation_level)

    # Display.

    def positions(self, topic: str) -> Sequence[QueuePosition]:
        """Return the group's position in each partition of a topic. May wait. Raises UnknownTopicError."""
        found = self._services.engine.topic(topic)
        with self._lock:
            return [self._position(found, one) for one in found.partitions().values()]

    def _position(self, topic: Topic, partition: Partition) -> QueuePosition:
        name = TopicPartition(topic.name, partition.number)
        machine = self._queues.machine(topic, partition.number)
        end = partition.visible_end(self._isolation)
        if machine is None:
            return QueuePosition(name, Offset(-1), Offset(-1), 0, 0, end - partition.log_start_offset)
        held = sum(one.last - one.first + 1 for one in machine.held())
        start = max(machine.start_offset, partition.log_start_offset)
        lag = max(0, end - start - machine.complete_count)
        return QueuePosition(
            name, Offset(start), Offset(max(start, machine.fetched_end)), held, machine.waiting(), lag
        )

    def in_flight(self, topic: str) -> Sequence[InFlight]:
        """Return the held records, by partition and offset. Never waits."""
        with self._lock:
            return [
                self._in_flight(RecordName(*queue.name, offset), held)
                for queue in sorted(self._queues.loaded(), key=lambda one: one.name)
                if queue.name.topic == topic
                for offset, held in queue.held()
            ]

    def _in_flight(self, record_name: RecordName, held: HeldRecords) -> InFlight:
        session = self._sessions.get(held.member)
        holder = "" if session is None else session.holder
        since, lease_end = Timestamp(held.since), Timestamp(held.lease_end)
        return InFlight(record_name, held.member, holder, since, held.deliveries, lease_end)

    def rejected(self, topic: str) -> Sequence[Rejected]:
        """Return up to 10,000 newest rejected records still in their logs, by partition and offset. May wait."""
        found = self._services.engine.topics().get(topic)
        if found is None:
            return ()
        topic_id = decode_id(found.topic_id)
        with self._services.journal_lock:
            noted = list(self._services.journal.rejected.items())
        with self._lock:
            shown = [
                Rejected(
                    RecordName(topic, key.partition, key.offset), one.time, one.by, one.deliveries, one.holder
                )
                for key, one in noted
                if key.group == self.name and key.topic_id == topic_id and self._is_rejected(found, key)
            ]
        return sorted(shown)

    def _is_rejected(self, topic: Topic, key: RejectedKey) -> bool:
        """Return whether the stored state confirms that a record in the journal was rejected.

        It does not if a crash came after the write to the journal and before the state was stored.
        """
        partition = topic.partitions().get(key.partition)
        machine = self._queues.machine(topic, key.partition)
        if partition is None or machine is None or key.offset < partition.log_start_offset:
            return False
        return key.offset < machine.start_offset or machine.is_archived(key.offset)

    def forget_rejected(self, record_name: RecordName) -> None:
        """Remove a record from `rejected`. Raises RecordNotHeldError if the record is not in `rejected`."""
        topic = self._services.engine.topic(record_name.topic)
        key = RejectedKey(*self._queues.key(topic, record_name.partition), record_name.offset)
        with self._services.journal_lock:
            if key not in self._services.journal.rejected:
                raise RecordNotHeldError(
                    f"{record_name}: is not among the rejected records of group {self.name}"
                )
            self._services.journal.forget([key])

    # Changes of the group.

    def reset(self, partition: TopicPartition, offset: Offset) -> None:
        """Set the start offset in a partition. Raises GroupNotEmptyError, UnknownTopicError, ReadOnlyError, OSError."""
        topic = self._services.engine.topic(partition.topic)
        found = topic.partitions().get(partition.partition)
        if found is None:
            raise UnknownTopicError.of_partition(*partition, topic.partitions())
        bounds = found.offsets()
        if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
            raise OffsetOutOfRangeError(
                offset, bounds.log_start_offset, bounds.log_end_offset, str(partition)
            )
        with self._lock:
            self.check_empty()
            self._queues.initialize(topic)
            key = self._queues.key(topic, partition.partition)
            state = self._services.store.peek(key)
            epoch = max(self._queues.epoch, 0 if state is None else state.state_epoch) + 1
            self._services.memberships.put(self.name, epoch)
            self._services.store.initialize(key, epoch, offset)
            self._queues.epoch = epoch
            self._queues.drop(lambda name: name == partition)

    def delete(self) -> None:
        """Delete all state of the group. Raises GroupNotEmptyError, ReadOnlyError, OSError."""
        with self._lock:
            self.check_empty()
            self._forget_topics()
            # First delete the settings and notes: after a crash, a new group of this name must not inherit
            # them.
            with self._services.journal_lock:
                self._services.journal.forget_group(self.name)
            self._overrides, self.settings = {}, ShareGroupSettings()
            self._services.memberships.delete(self.name)
            self._queues.epoch = 0
            self._is_deleted = True

    def check_empty(self) -> None:
        if self._services.engine.read_only:
            raise ReadOnlyError(f"group {self.name}: the engine was opened read-only")
        if self._sessions:
            raise GroupNotEmptyError(f"group {self.name}: has {len(self._sessions)} members; end them first")

    def _forget_topics(self) -> None:
        known = self._services.memberships.find(self.name)
        if known is None:
            return
        gone: set[uuid.UUID] = set()
        for topics in (known.topics.initialized, known.topics.initializing):
            for topic_id, topic in topics.items():
                gone.add(topic_id)
                for number in topic.partitions:
                    self._services.store.delete(SharePartitionKey(self.name, topic_id, number))
        self._services.memberships.put(self.name, known.epoch, without_topics(known.topics, frozenset(gone)))
        with self._services.journal_lock:
            keys = [key for key in self._services.journal.rejected if key.group == self.name]
            self._services.journal.forget([key for key in keys if key.topic_id in gone])
        self._queues.drop(lambda _name: True)

    def alter(self, changes: Mapping[str, str | None]) -> None:
        """Set settings (None: reset). Raises InvalidConfigError, UnknownGroupError, ReadOnlyError, OSError."""
        with self._lock:
            if self._services.engine.read_only:
                raise ReadOnlyError(f"group {self.name}: the engine was opened read-only")
            if self._services.memberships.find(self.name) is None:
                raise UnknownGroupError(f"{self.name}: no such group")
            merged = {name: value for name, value in self._overrides.items() if name not in changes}
            merged |= {name: value for name, value in changes.items() if value is not None}
            unknown = sorted(set(changes) - set(SHARE_GROUP_SETTINGS))
            if unknown:
                raise InvalidConfigError(f"{unknown[0]}: no such setting of share groups")
            settings = ShareGroupSettings.from_overrides(merged)
            with self._services.journal_lock:
                self._services.journal.set(self.name, merged)
            self._overrides, self.settings = merged, settings
        self._notify()

    # Waiting sessions.

    def _notify(self) -> None:
        for session in list(self._sessions.values()):
            session.listeners.notify()


def _lenient_settings(overrides: Mapping[str, str]) -> ShareGroupSettings:
    """Return the settings, skipping overrides that are no longer valid."""
    known: dict[str, str] = {}
    for name, value in overrides.items():
        with suppress(InvalidConfigError):
            ShareGroupSettings.from_overrides({name: value})
            known[name] = value
    return ShareGroupSettings.from_overrides(known)
