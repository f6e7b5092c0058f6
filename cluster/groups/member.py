"""A member of a group of a cluster: one thread that joins, says that it lives, commits, and joins again.

    join ─► sync ─► positions ─► held ── heartbeat: a rebalance began ──► join again
                                  │  ▲
                  commits, what is given up, topics that came

With cooperative-sticky it keeps what it holds while it joins again, and gives up only what others are to get; with the
other assignors it first gives up everything. A member that its coordinator gave up, as after a long pause, holds nothing
any longer and joins anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from topicfs.cluster.brokers.brokers import Backoff
from topicfs.cluster.errors import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_ID,
    UnreachableError,
    error_of,
)
from topicfs.cluster.groups.requests import GroupClient, Joined, Timeouts, is_member_id_required
from topicfs.cluster.protocol.connection import Connection
from topicfs.coordination.groups.requests import Protocol as Offered
from topicfs.coordination.groups.runtime.assignment import (
    COOPERATIVE,
    assign,
    read_assignment,
    read_topics,
    subscription,
)
from topicfs.coordination.groups.runtime.commits import Commit, Commits
from topicfs.coordination.membership import (
    CommittedPosition,
    MemberPartitions,
    Position,
    Subscription,
    check_positions,
)
from topicfs.storage.config.group import GroupConfig
from topicfs.storage.errors import (
    InvalidPositionError,
    NotAssignedError,
    StorageError,
)
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)

SESSION_MS = 10_000
"""After so long without a heartbeat, as when this process is killed, the others get what the member held."""
HEARTBEAT_SECONDS = 1.0
"""How soon a rebalance is noticed; Kafka's consumer takes up to three seconds."""
REBALANCE_MS = 300_000
"""Kafka's max.poll.interval.ms, where the group sets none: how long the others wait for this one to join again."""
UNSTABLE_SECONDS = 0.1
"""Kafka's retry.backoff.ms: how often to look whether a transaction has decided a position."""
_GIVEN_UP = frozenset({UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID})
"""Codes that say: this member is none any longer."""


class Topics(Protocol):
    """The topics of the cluster, as last seen."""

    def partition_counts(self) -> Mapping[str, int]:
        """Return how many partitions each topic has."""
        ...

    def topic_ids(self) -> Mapping[str, str]:
        """Return the id of each topic: one that was deleted and made again has another."""
        ...

    def matching(self, wanted: Subscription) -> frozenset[str]:
        """Return the topics that are subscribed to."""
        ...


class ClusterMember:
    """See `coordination.membership.Membership`."""

    def __init__(  # noqa: PLR0913 - keyword-only but for what it joins
        self,
        client: GroupClient,
        wanted: Subscription,
        topics: Topics,
        *,
        reader: str,
        config: Callable[[], GroupConfig],
        listener: Callable[[], None],
        ended: Callable[[ClusterMember], None],
    ) -> None:
        self.group = client.group
        self.member_id = ""
        self.reader = reader
        self._client = client
        self._wanted = wanted
        self._topics = topics
        self._config = config
        self._listener = listener
        self._ended = ended
        self._held = MemberPartitions()
        self._commits = Commits()
        self._changed = threading.Condition()
        self._given: set[TopicPartition] = set()
        """Given up by the reader, and not yet taken away."""
        self._leaving = self._looks = self._put_back = False
        self._rejoins = True
        """True until it holds what was assigned in the newest generation that it knows of."""
        self._backoff = Backoff()
        self._waiting: Connection | None = None
        """The connection on which a join waits for the others."""
        self._left: Future[None] = Future()
        self._generation = -1
        self._ids: Mapping[str, str] = {}
        """The ids of the topics as it saw them last."""
        self._assignor = ""
        self._subscribed: frozenset[str] = frozenset()
        self._unready: frozenset[TopicPartition] = frozenset()
        """Assigned, but a transaction may still move the position."""
        self._previous: frozenset[TopicPartition] = frozenset()
        """The partitions that an eager member held last: sticky gives it back where it can."""
        self._assigned_over: Mapping[str, int] | None = None
        """As leader: the numbers of partitions of the topics that any member wants."""
        self._thread = threading.Thread(target=self._run, name=f"member of {self.group}", daemon=True)

    def start(self) -> None:
        """Join the group; nothing else must be called before."""
        self._thread.start()

    # From any thread.

    def held(self) -> MemberPartitions:
        return self._held

    def commit(self, positions: Mapping[TopicPartition, Position], *, at_once: bool = False) -> Future[None]:
        del at_once  # A request is under way as soon as the one before is answered.
        future: Future[None] = Future()
        lost = self._held.lost
        try:
            check_positions(self.group, positions)
        except InvalidPositionError as error:
            lost = lost or error
        if lost is not None:
            future.set_exception(lost)
        else:
            self._commits.add(Commit(dict(positions), future))
            self._wake()
            if self._held.lost is not None:  # It ended meanwhile, and nobody looks any more.
                self._commits.fail(self._held.lost)
        return future

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            self._given.update(partitions)
            self._changed.notify()

    def leave(self) -> Future[None]:
        with self._changed:
            self._leaving = True
            self._changed.notify()
            if self._waiting is not None:
                self._waiting.break_off()
        return self._left

    def topics_changed(self) -> None:
        """Look whether it wants other topics now."""
        with self._changed:
            self._looks = True
            self._changed.notify()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    @property
    def leaving(self) -> Future[None] | None:
        """The end of the membership, if it was told to leave."""
        return self._left if self._leaving else None

    # The thread.

    def _run(self) -> None:
        reason: Exception = NotAssignedError(f"{self.group}: left")
        try:
            self._live()
        except Exception as error:
            if not isinstance(error, StorageError | OSError):
                _LOGGER.exception("an error that nobody expected in group %s", self.group)
            reason = error
        self._end(reason)

    def _live(self) -> None:
        """Be a member until it is to leave. Raises what ends it otherwise."""
        while not self._leaving:
            try:
                if self._rejoins:
                    self._join()
                self._serve()
            except _GivenUpError as error:
                _LOGGER.info("[GroupId %s] %s; it joins anew.", self.group, error)
                self._forget()
            except UnreachableError:  # It goes on with what it holds, for as long as its coordinator is away.
                self._client.forget_coordinator()
                with self._changed:
                    self._changed.wait_for(lambda: self._leaving, self._backoff.next())

    def _end(self, reason: Exception) -> None:
        try:
            try:
                if self._leaving:
                    self._commit_now()
            finally:
                if self.member_id:
                    self._client.leave(self.member_id, "the file was closed")
        except (StorageError, OSError, _GivenUpError) as error:
            _LOGGER.info(
                "[GroupId %s] %s could not leave: %s; its session times out.",
                self.group,
                self.member_id,
                error,
            )
        self._hold(MemberPartitions(lost=reason))
        self._commits.fail(reason)
        self._ended(self)
        self._left.set_result(None)

    # Joining.

    @property
    def settled_generation(self) -> int:
        """The generation in which it holds what it holds; -1 while it joins, or is to."""
        return -1 if self._rejoins else self._held.generation

    @property
    def _cooperative(self) -> bool:
        return self._assignor == COOPERATIVE

    def _join(self) -> None:
        """Join, and hold what is assigned. Raises _GivenUpError, UnreachableError, GroupError."""
        config = self._config()
        self._drop_deleted()
        if not self._held.partitions:
            self._assignor = config.assignor
        timeouts = Timeouts(SESSION_MS, config.max_poll_interval_ms or REBALANCE_MS)
        self._rejoins, self._looks = True, False
        self._subscribed = self._topics.matching(self._wanted)
        owned = self._held.partitions if self._cooperative else self._previous
        metadata = subscription(self._assignor, self._subscribed, owned, self._generation)
        joined = self._joined(Offered(self._assignor, metadata), timeouts)
        self._generation = joined.generation
        synced = self._client.sync(joined, self._assignments(joined), timeouts)
        if synced.code == REBALANCE_IN_PROGRESS:
            return
        self._check(synced.code)
        self._adopt(read_assignment(synced.assignment))
        self._rejoins = self._put_back = False
        self._backoff = Backoff()

    def _joined(self, offered: Offered, timeouts: Timeouts) -> Joined:
        joined = self._client.join(self.member_id, offered, timeouts, self._lend)
        if is_member_id_required(joined):
            self.member_id = joined.member_id
            joined = self._client.join(self.member_id, offered, timeouts, self._lend)
        self._check(joined.code)
        self.member_id = joined.member_id
        return joined

    def _lend(self, connection: Connection | None) -> None:
        with self._changed:
            self._waiting = connection
            if connection is not None and self._leaving:
                connection.break_off()

    def _assignments(self, joined: Joined) -> Mapping[str, bytes]:
        if joined.leader != self.member_id or joined.protocol is None:
            self._assigned_over = None
            return {}
        counts = self._topics.partition_counts()
        wanted = {topic for member in joined.members for topic in read_topics(member.metadata)}
        self._assigned_over = {topic: counts.get(topic, 0) for topic in wanted}
        return {} if joined.skips_assignment else assign(joined.protocol, joined.members, counts)

    def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        """Hold what was assigned, and want back what was not."""
        held = self._held
        kept = held.partitions
        new = assigned - kept
        found, self._unready = self._client.fetch_stable(sorted(new)) if new else ({}, frozenset())
        ready = new - self._unready
        positions: dict[TopicPartition, CommittedPosition | None] = {one: found.get(one) for one in ready}
        self._previous = assigned
        self._hold(
            MemberPartitions(
                generation=self._generation,
                partitions=kept | ready,
                wanted_back=kept - assigned,
                positions=MappingProxyType({**held.positions, **positions}),
                topic_ids=self._ids,
            )
        )

    def _look_again(self) -> None:
        """See whether the transactions that may move positions have ended."""
        self._adopt((self._held.partitions - self._held.wanted_back) | self._unready)

    def _check(self, code: int) -> None:
        if code in _GIVEN_UP:
            raise _GivenUpError(f"member {self.member_id} was given up by its coordinator")
        if code != NONE:
            raise error_of(code, f"group {self.group}")

    # Between two joins.

    def _serve(self) -> None:
        """Commit and say that it lives, until it is time to join again, or to leave."""
        next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
        while not self._leaving:
            if self._take_given():
                return
            if self._looks:
                self._look_at_topics()
            if self._rejoins and self._is_free_to_join():
                return
            if self._unready:
                self._look_again()
            self._commit_now()
            now = time.monotonic()
            if now >= next_heartbeat:
                self._heartbeat()
                next_heartbeat = now + HEARTBEAT_SECONDS
                continue
            with self._changed:
                pause = next_heartbeat - now
                self._changed.wait_for(
                    self._has_work, min(pause, UNSTABLE_SECONDS) if self._unready else pause
                )

    def _has_work(self) -> bool:
        return bool(self._leaving or self._given or self._looks or (self._commits and not self._put_back))

    def _heartbeat(self) -> None:
        code = self._client.heartbeat(self.member_id, self._generation)
        if code == REBALANCE_IN_PROGRESS:
            self._rejoins = True
        else:
            self._check(code)
        self._backoff = Backoff()

    def _is_free_to_join(self) -> bool:
        """Return whether it may join again now; an eager member wants everything back first."""
        if self._cooperative or not self._held.partitions:
            return True
        if self._held.wanted_back != self._held.partitions:
            self._hold(replace(self._held, wanted_back=self._held.partitions))
        return False

    def _take_given(self) -> bool:
        """Take away what was given up; return whether it is time to join again."""
        with self._changed:
            given, self._given = self._given & self._held.wanted_back, set()
        if not given:
            return False
        self._commit_now()
        self._hold(self._held.without(given))
        if self._held.wanted_back:
            return False
        self._rejoins = True
        return True

    def _look_at_topics(self) -> None:
        self._looks = False
        self._drop_deleted()
        counts = self._topics.partition_counts()
        if self._topics.matching(self._wanted) != self._subscribed or (
            self._assigned_over is not None
            and any(counts.get(topic, 0) != number for topic, number in self._assigned_over.items())
        ):
            self._rejoins = True

    def _drop_deleted(self) -> None:
        """Hold no partition of a deleted topic any longer; join again if the topic was made again."""
        before, self._ids = self._ids, (ids := self._topics.topic_ids())
        gone = {one for one in self._held.partitions if ids.get(one.topic) != before.get(one.topic)}
        if gone:
            self._hold(self._held.without(gone))
            # Those of deleted topics fail.
            calls, _ = self._commits.take(self._held.partitions, self.group, ids.get)
            self._commits.put_back(calls)
            self._rejoins = self._rejoins or any(one.topic in ids for one in gone)

    # What it holds.

    def _forget(self) -> None:
        """Hold nothing any longer, and join as a new member."""
        self.member_id, self._generation = "", -1
        self._previous = self._unready = frozenset()
        self._rejoins, self._put_back = True, False
        self._hold(MemberPartitions())
        # Others go on from what was committed before.
        calls, _ = self._commits.take(frozenset(), self.group, self._ids.get)
        for call in calls:
            call.done()

    def _hold(self, held: MemberPartitions) -> None:
        self._held = held
        try:
            self._listener()
        except Exception:  # it is told once more with the next change
            _LOGGER.exception("a listener of the group %s", self.group)

    # Commits.

    def _commit_now(self) -> None:
        """Commit what was asked for so far. Raises _GivenUpError, UnreachableError, GroupError."""
        if not self._commits:
            return
        calls, positions = self._commits.take(self._held.partitions, self.group, self._ids.get)
        if not positions:
            for call in calls:
                call.done()
            return
        try:
            codes = self._client.commit(positions, self._ids, self.member_id, self._generation)
        except UnreachableError:
            self._commits.put_back(calls)
            raise
        except StorageError as error:
            for call in calls:
                call.fail(error)
            return
        found = set(codes.values())
        if REBALANCE_IN_PROGRESS in found:
            self._commits.put_back(calls)  # Until the assignment has come.
            self._rejoins = self._put_back = True
            return
        for call in calls:
            self._answer(call, codes)
        for code in found & _GIVEN_UP:
            self._check(code)

    def _answer(self, call: Commit, codes: Mapping[TopicPartition, int]) -> None:
        bad = next((one for one in call.positions if codes.get(one, NONE) != NONE), None)
        if bad is None:
            call.done()
        elif codes[bad] == UNKNOWN_TOPIC_ID:  # The topics that are there now show soon, and it joins again.
            call.fail(NotAssignedError(f"{self.group}: {bad}: its topic was deleted"))
        else:
            call.fail(error_of(codes[bad], f"group {self.group}: {bad}"))


class _GivenUpError(Exception):
    """The coordinator knows the member no longer."""
