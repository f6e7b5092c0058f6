"""The single thread that serves an engine's groups: it runs requests, timers and appends one after another.

Other threads pass it actions: `post` does not wait, `call` waits for the result. The first action starts the thread,
which then reads `__consumer_offsets`. An engine whose groups are not used therefore has no thread and reads nothing.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from topicfs.coordination.engine import Engine
from topicfs.coordination.groups.group import PREPARING, Group
from topicfs.coordination.groups.offsets import NO_TOPIC_ID
from topicfs.coordination.groups.rebalance import GroupLimits
from topicfs.coordination.groups.runtime.shard import Shard, ShardState
from topicfs.coordination.groups.timers import Timers
from topicfs.coordination.membership import GroupsSummary, Subscription
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.engine import Listeners, Topic
from topicfs.storage.errors import GroupError, ReadOnlyError
from topicfs.storage.model import TopicPartition
from topicfs.storage.partitioning import least_count, partition_of_name

if TYPE_CHECKING:
    from topicfs.coordination.groups.runtime.embedded_member import EmbeddedCoordinator

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

TOPIC = names.CONSUMER_OFFSETS
COMMIT_SECONDS = 0.01
"""How long a commit waits for other commits. All of them are then written in one append."""
JOIN_SECONDS = 0.003
"""Delay before members of this process rejoin. One rebalance then covers several members that join or leave."""
MAX_WAKEUPS = 50
"""Number of wakeups after which a wait of COMMIT_SECONDS or JOIN_SECONDS ends, even if requests keep coming."""
MAX_LINGER_MS = 1000
"""Upper limit of the wait before a rebalance, even if the rebalances of a large group take longer."""
CLOSED = "the groups are closed"


class _Known(NamedTuple):
    """The id and partition count of a topic when the runner last looked."""

    topic_id: uuid.UUID
    partitions: int


class Linger:
    """A short wait that collects more work. It ends if no work comes for a while, or after MAX_WAKEUPS wakeups."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds = self._shortest = seconds
        self._clock = clock
        self._least_ms = 0
        self._began = 0
        self._quiet_seconds = 0.0
        self._wakeups: int | None = None

    def begin(self) -> None:
        """Start the wait unless it is under way."""
        if self._wakeups is None:
            self._wakeups, self._quiet_seconds, self._began = 0, 0.0, self._clock()

    def hurry(self) -> None:
        """Let the next check end the wait."""
        self._wakeups = MAX_WAKEUPS

    def goes_by(self, milliseconds: int) -> None:
        """Make the wait last about as long as the last work, which took `milliseconds`."""
        self._least_ms = min(milliseconds, MAX_LINGER_MS)
        self.seconds = max(self._shortest, self._least_ms / 4000)

    def woken(self, quiet_seconds: float) -> None:
        """Count a wakeup that came after `quiet_seconds` without work; 0 means that there was work."""
        if self._wakeups is None:
            return
        self._quiet_seconds = self._quiet_seconds + quiet_seconds if quiet_seconds else 0.0
        if self._quiet_seconds >= self.seconds:
            self.hurry()
        elif self._wakeups < MAX_WAKEUPS - 1 or not 0 <= self._clock() - self._began < self._least_ms:
            self._wakeups += 1

    @property
    def is_waiting(self) -> bool:
        return self._wakeups is not None

    def take(self) -> bool:
        """Return whether the wait is over. If it is, reset it."""
        over = self._wakeups is not None and self._wakeups >= MAX_WAKEUPS
        if over:
            self._wakeups = None
        return over


class Runner:
    """The thread that serves an engine's groups, with its timers, members and shards."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        limits: GroupLimits,
        partitions: int,
        follows: bool,
        serves_clients: Callable[[], bool],
    ) -> None:
        self.engine = engine
        self.read_only = engine.read_only or follows
        """True if the engine is read-only, or if it follows another engine. Groups can then be shown, but not
        changed.
        """
        self.serves_clients = serves_clients
        """Returns whether Kafka clients may be members."""
        self.clock = clock
        self.limits = limits
        self.shards: dict[int, Shard] = {}
        self.timers = Timers(clock)
        """Timers of the members of this process."""
        self.members: dict[str, dict[str, EmbeddedCoordinator]] = {}
        """The members of this process, by group and member id."""
        self.listeners = Listeners()
        self._partitions = partitions
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._later: deque[Callable[[], None]] = deque()
        self._changed: dict[str, Group] = {}
        self._committing: dict[EmbeddedCoordinator, None] = {}
        self._commit_linger = Linger(COMMIT_SECONDS, clock)
        self._preparing: dict[str, Group] = {}
        """The groups whose members in this process have to rejoin."""
        self._join_linger = Linger(JOIN_SECONDS, clock)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._stopping = False
        self._topics: dict[str, _Known] = {}

    # Safe from any thread.

    def post(self, action: Callable[[], None]) -> None:
        """Run an action in the thread, without waiting for it. Raises GroupError after `close`."""
        with self._lock:
            if self._closed:
                raise GroupError(CLOSED)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="groups", daemon=True)
                self._thread.start()
            self._inbox.put(action)

    def call(self, action: Callable[[], T]) -> T:
        """Run an action in the thread; return its result, or raise its exception."""
        if threading.current_thread() is self._thread:
            return action()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001 (it is raised where it was asked for)
                future.set_exception(error)

        self.post(run)
        return future.result()

    @property
    def started(self) -> bool:
        return self._thread is not None

    def summary(self) -> GroupsSummary | None:
        """Return the numbers of groups and members, perhaps slightly outdated; None if groups are not used yet."""
        shards = list(self.shards.values())
        if not shards:
            return None
        groups = [group for shard in shards for group in list(shard.coordinator.groups.values())]
        return GroupsSummary(
            groups=len(groups),
            members=sum(len(group.members) for group in groups),
            failed=tuple(
                f"{shard.place}: {shard.reason}" for shard in shards if shard.state is ShardState.FAILED
            ),
        )

    def topics_changed(self) -> None:
        """Apply created, deleted and grown topics. Do nothing if groups have not been used yet."""
        if self.started:
            with suppress(GroupError):
                self.post(self._look_at_topics)

    def close(self) -> None:
        """End all memberships, write groups without members to the log, and end the thread (blocking). Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
            if thread is not None:
                self._inbox.put(self._stop)
        if thread is not None:
            thread.join()

    # The thread.

    def _run(self) -> None:
        self._guarded(self._load)
        while not self._stopping:
            for action in self._next():
                self._guarded(action)
            self._run_postponed()
            self._fire_timers()
            if self._commit_linger.take():
                self._guarded(self.commit_all)
            if self._join_linger.take():
                self._rebalance()
            else:
                self._run_postponed()

    def _next(self) -> Iterable[Callable[[], None]]:
        """Wait for an action or a timeout. Return all actions that have arrived by then."""
        actions, timeout = [], self._timeout()
        try:
            actions.append(self._inbox.get(timeout=timeout))
            while True:
                actions.append(self._inbox.get_nowait())
        except Empty:
            pass
        for linger in (self._commit_linger, self._join_linger):
            linger.woken(0.0 if actions else timeout or 0.0)
        return actions

    def _timeout(self) -> float | None:
        dues = [shard.timers.next_due() for shard in self.shards.values()]
        due = min((one for one in (self.timers.next_due(), *dues) if one is not None), default=None)
        lingers = (self._commit_linger, self._join_linger)
        waits = [linger.seconds for linger in lingers if linger.is_waiting]
        if due is not None:
            waits.append(max(0.0, (due - self.clock()) / 1000))
        return min(waits, default=None)

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception:  # whatever the error, go on serving the other groups
            _LOGGER.exception("unexpected error in the thread of the groups")

    def _run_postponed(self) -> None:
        """Run postponed actions, note rebalances that began, and notify the listeners."""
        told = False
        while self._later or self._changed:
            while self._later:
                self._guarded(self._later.popleft())
            changed, self._changed = self._changed, {}
            for name, group in changed.items():
                told = True
                if group.state is PREPARING and name in self.members:
                    self._preparing[name] = group
                    self._join_linger.begin()
        if told:
            self.listeners.notify()

    def _rebalance(self) -> None:
        """Let the members of this process rejoin the groups that are rebalancing.

        A member rejoins only once, even if several members joined or left.
        """
        began, preparing, self._preparing = self.clock(), self._preparing, {}
        for name, group in preparing.items():
            if group.state is PREPARING:
                for member in list(self.members.get(name, {}).values()):
                    self._guarded(member.rebalance)
        self._run_postponed()
        self._join_linger.goes_by(self.clock() - began)

    def _fire_timers(self) -> None:
        for shard in list(self.shards.values()):
            if shard.timers.next_due() is not None:
                self._guarded(shard.fire_timers)
        now = self.clock()
        while (action := self.timers.take_due(now)) is not None:
            self._guarded(action)

    def _stop(self) -> None:
        self._stopping = True
        self._guarded(self.commit_all)
        for members in list(self.members.values()):
            for local in list(members.values()):
                local.member.end(GroupError(CLOSED))
        for shard in self.shards.values():
            if shard.state is ShardState.ACTIVE and not self.read_only:
                self._guarded(partial(shard.end, serves_clients=self.serves_clients()))
            shard.unload()
        self._run_postponed()

    # For the thread itself.

    def later(self, action: Callable[[], None]) -> None:
        """Run an action after the present one."""
        self._later.append(action)

    def group_changed(self, group: Group) -> None:
        self._changed[group.name] = group

    def commit_soon(self, member: EmbeddedCoordinator, *, at_once: bool = False) -> None:
        """Append a member's commits after some milliseconds, together with other members' commits.

        If `at_once` is set, append them right after the present action.
        """
        self._commit_linger.begin()
        if at_once:
            self._commit_linger.hurry()
        self._committing[member] = None

    def commit_all(self) -> None:
        """Append all waiting commits, in one append per shard."""
        committing, self._committing = self._committing, {}
        by_shard: dict[Shard, list[EmbeddedCoordinator]] = {}
        for member in committing:
            by_shard.setdefault(member.shard, []).append(member)
        for shard, members in by_shard.items():
            shard.append([member.take_commits() for member in members])

    # The shards.

    def shard_of(self, group: str, *, to_write: bool = False) -> Shard | None:
        """Return the shard of a group; None if `__consumer_offsets` does not exist.

        With `to_write`, the topic is created if it is missing. Raises GroupError, PartitionOfflineError,
        ReadOnlyError, OSError.
        """
        if to_write:
            self.check_writable()
            if not self.shards:
                self._make_topic()
        if not self.shards:
            return None
        number = partition_of_name(TOPIC, group, self.shards, lambda one: self.shards[one].holds(group))
        shard = self.shards[number]
        shard.check()
        return shard

    def shard_to_write(self, group: str) -> Shard:
        shard = self.shard_of(group, to_write=True)
        assert shard is not None
        return shard

    def is_other(self, group: str) -> bool:
        """Return whether a queue or a group of a newer protocol has the name at present.

        Queues are looked up at each call, because other threads create and delete them. Raises the errors of
        `shard_of`. Raises CorruptionError if the records of queues cannot be read, unless a group of a newer protocol
        has the name.
        """
        shard = self.shard_of(group)
        if shard is not None and group in shard.others:
            return True
        is_known = shard is not None and group in shard.coordinator.groups
        return not is_known and self.engine.share_groups.exists(group)

    def check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(
                "the engine was opened read-only or follows another one: its groups and their positions cannot be changed"
            )

    def _make_topic(self) -> None:
        if TOPIC not in self.engine.topics():
            self.engine.create_topic(TOPIC, partitions=self._partitions)
        self._load()

    def _load(self) -> None:
        self._topics = self._see_topics()
        topic = self.engine.topics().get(TOPIC)
        for number in topic.partitions() if topic is not None else ():
            assert topic is not None
            self._load_shard(topic, number)

    def _load_shard(self, topic: Topic, number: int) -> None:
        shard = self.shards[number] = Shard(
            topic.partitions()[number],
            clock=self.clock,
            limits=self.limits,
            topic_ids=self.topic_id,
            changed=self.group_changed,
        )
        shard.load(lambda: self._closed)
        if not self.read_only:
            shard.begin(serves_clients=self.serves_clients())

    # Topics.

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        topic = self.engine.topics().get(partition.topic)
        if topic is None or partition.partition not in topic.partitions():
            return None
        return _decoded(topic.topic_id)

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic, including those that are not in the data directories."""
        return {name: one.partitions for name, one in self._topics.items()}

    def id_of(self, topic: str) -> str | None:
        found = self.engine.topics().get(topic)
        return None if found is None else found.topic_id

    def matching(self, wanted: Subscription) -> frozenset[str]:
        topics = self.engine.topics()
        return wanted.topics | {
            name
            for name in self._topics
            if wanted.wants(name, internal=name in topics and topics[name].internal)
        }

    def _see_topics(self) -> dict[str, _Known]:
        return {
            name: _Known(_decoded(topic.topic_id), least_count(topic.partitions()))
            for name, topic in self.engine.topics().items()
        }

    def _look_at_topics(self) -> None:
        before, self._topics = self._topics, self._see_topics()
        self._look_at_shards()
        if before == self._topics:
            return
        deleted = {
            name: known.topic_id
            for name, known in before.items()
            if name not in self._topics or self._topics[name].topic_id != known.topic_id
        }
        if deleted and not self.read_only:
            for shard in self.shards.values():
                if shard.state is ShardState.ACTIVE:
                    shard.append(shard.offsets.topics_deleted(deleted))
        for members in list(self.members.values()):
            for local in list(members.values()):
                self._guarded(local.member.look_at_topics)

    def _look_at_shards(self) -> None:
        """Reload partitions that were reopened, and drop all shards if the topic was deleted."""
        topic = self.engine.topics().get(TOPIC)
        if topic is None:
            gone, self.shards = self.shards, {}
            for shard in gone.values():
                self._end_members(shard, GroupError(f"{TOPIC} was deleted"))
                shard.unload()
            return
        for number, partition in topic.partitions().items():
            known = self.shards.get(number)
            if known is not None and known.partition is not partition:
                self._end_members(known, GroupError(f"{known.place}: was reopened; join the group again"))
                known.unload()
                self._load_shard(topic, number)
            elif known is None:
                self._load_shard(topic, number)

    def _end_members(self, shard: Shard, reason: GroupError) -> None:
        for members in list(self.members.values()):
            for local in list(members.values()):
                if local.shard is shard:
                    local.member.end(reason)


@lru_cache(maxsize=4096)
def _decoded(topic_id: str) -> uuid.UUID:
    try:
        return decode_id(topic_id)
    except ValueError:
        return NO_TOPIC_ID
