"""The share groups of an engine: those of the embedded engine (`QueueGroups`), or none (`NoShareGroups`)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from threading import RLock
from typing import TypeAlias

from topicfs.coordination.records.group_records import check_group_name
from topicfs.coordination.records.share_group_records import GroupTopics
from topicfs.coordination.records.share_state_records import SharePartitionKey, ShareState
from topicfs.coordination.shares.coordinator_topic import CoordinatorTopic
from topicfs.coordination.shares.group import GroupServices, QueueGroup
from topicfs.coordination.shares.journal import QueueJournal
from topicfs.coordination.shares.memberships import TOPIC as MEMBERSHIPS_TOPIC
from topicfs.coordination.shares.memberships import Memberships
from topicfs.coordination.shares.state.shard import StateWrite
from topicfs.coordination.shares.state.store import TOPIC as STATE_TOPIC
from topicfs.coordination.shares.state.store import StateStore
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Cancel, LogEngine
from topicfs.storage.errors import GroupExistsError, GroupsUnsupportedError, ReadOnlyError, UnknownGroupError
from topicfs.storage.model import Timestamp

PRUNE_INTERVAL_MS = 5 * 60 * 1000


class NoShareGroups:
    """The share groups of an engine that cannot have any: each call fails with the reason."""

    def __init__(self, reason: str) -> None:
        self.unavailable = reason

    def groups(self) -> Mapping[str, QueueGroup]:
        return {}

    def exists(self, name: str) -> bool:
        del name
        return False

    def group(self, name: str) -> QueueGroup:
        raise GroupsUnsupportedError(f"{name}: {self.unavailable}")

    def create(self, name: str) -> QueueGroup:
        raise GroupsUnsupportedError(f"{name}: {self.unavailable}")

    def delete(self, name: str) -> None:
        raise UnknownGroupError(f"{name}: no such group")


class QueueGroups:
    """The share groups of an engine with data directories. The stored state is read on first use."""

    unavailable: str | None = None
    """The reason why the engine cannot have share groups, as a sentence; None if it can. Never waits."""

    def __init__(self, engine: LogEngine, read_journal: Callable[[], QueueJournal], clock: Clock) -> None:
        self._engine = engine
        self._read_journal = read_journal
        self._clock = clock
        self._lock = RLock()
        self._groups: dict[str, QueueGroup] = {}
        self._services: GroupServices | None = None
        self._pruned_at = clock()
        self._topic_ids: frozenset[uuid.UUID] = frozenset()
        self._cancel: Cancel = lambda: None

    def groups(self) -> Mapping[str, QueueGroup]:
        """Return the groups that have sessions or a stored state, by name. The first call may wait."""
        with self._lock:
            kept = self._opened().memberships.groups()
            with_sessions = {name for name, one in self._groups.items() if one.members()}
            return {name: self._group(name) for name in sorted({*kept, *with_sessions})}

    def exists(self, name: str) -> bool:
        """Return whether a group of that name is stored. The first call may wait."""
        with self._lock:
            return self._opened().memberships.find(name) is not None

    def group(self, name: str) -> QueueGroup:
        """Return a group, old or new. May wait. Raises InvalidGroupError, GroupExistsError, GroupsUnsupportedError."""
        with self._lock:
            check_group_name(name)
            if name not in self._groups and self._opened().memberships.is_other(name):
                raise GroupExistsError(
                    f"group {name}: is a consumer group; choose another name for the queue"
                )
            return self._group(name)

    def create(self, name: str) -> QueueGroup:
        """Create a group without sessions, for `mkdir`. Raises GroupExistsError and errors of `group`."""
        with self._lock:
            group = self.group(name)
            if self._engine.read_only:
                raise ReadOnlyError(f"group {name}: the engine was opened read-only")
            if self._opened().memberships.find(name) is not None:
                raise GroupExistsError(f"group {name}: already exists")
            self._opened().memberships.put(name, 0)
        return group

    def delete(self, name: str) -> None:
        """Delete a group and its state. Raises UnknownGroupError, GroupNotEmptyError, ReadOnlyError, OSError."""
        with self._lock:
            if name not in self.groups():
                raise UnknownGroupError(f"{name}: no such group")
            self._group(name).delete()
            self._groups.pop(name, None)

    def _group(self, name: str) -> QueueGroup:
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = QueueGroup(name, self._opened())
        return found

    def _opened(self) -> GroupServices:
        if self._services is None:
            self._services = GroupServices(
                self._engine,
                StateStore(CoordinatorTopic(self._engine, STATE_TOPIC), self._clock),
                Memberships(CoordinatorTopic(self._engine, MEMBERSHIPS_TOPIC), self._clock),
                self._journal(),
                RLock(),
                self._clock,
            )
            self._topic_ids = self._present_ids()
            self._cancel = self._engine.listen(self._topics_changed)
        return self._services

    def _journal(self) -> QueueJournal:
        journal = self._read_journal()
        if not self._engine.read_only:
            journal.update_copies()
        return journal

    def places_changed(self) -> None:
        """Write the journal to a directory that is online again (blocking). Raises OSError."""
        services = self._services
        if services is not None:
            with services.journal_lock:
                services.journal.update_copies()

    def _topics_changed(self) -> None:
        for group in list(self._groups.values()):
            group.topics_changed()

    def adopt(
        self, name: str, epoch: int, topics: GroupTopics, states: Mapping[SharePartitionKey, ShareState]
    ) -> int:
        """Take over a group from another coordinator. Return the number of partitions whose state was taken over.

        A partition keeps its state if the group already has one there.
        """
        with self._lock:
            self.group(name)
            services = self._opened()
            new = {key: state for key, state in states.items() if services.store.peek(key) is None}
            if new:
                services.memberships.put(name, epoch, topics)
            for key, state in new.items():
                start = state.start_offset
                if start < 0:
                    start = self._end_of(key, topics)
                services.store.initialize(key, state.state_epoch, start)
                if state.batches:
                    write = StateWrite(state.state_epoch, -1, start, state.batches, state.complete_count)
                    services.store.write(key, write)
            self._groups.pop(name, None)
        return len(new)

    def _end_of(self, key: SharePartitionKey, topics: GroupTopics) -> int:
        topic = topics.initialized.get(key.topic_id) or topics.initializing[key.topic_id]
        return self._engine.partition(topic.name, key.partition).offsets().log_end_offset

    # Duties.

    def maintain(self, now: Timestamp) -> None:
        """End overdue leases and compact the stored state (blocking). Raises StorageError, OSError."""
        services = self._services
        if services is None or self._engine.read_only:
            return
        for group in list(self._groups.values()):
            group.expire(now)
        present = self._present_ids()
        gone = self._topic_ids - present
        if gone:
            services.store.delete_topics(gone)
        self._topic_ids = present
        if now - self._pruned_at >= PRUNE_INTERVAL_MS:
            self._pruned_at = now
            services.store.maintain(now)

    def close(self) -> None:
        """End all sessions, which releases the records that they hold."""
        self._cancel()
        for group in list(self._groups.values()):
            group.end_sessions()

    def _present_ids(self) -> frozenset[uuid.UUID]:
        return frozenset(decode_id(topic.topic_id) for topic in self._engine.topics().values())


ShareGroups: TypeAlias = QueueGroups | NoShareGroups
"""The share groups of an engine (`coordination.engine.Engine.share_groups`)."""
