"""A member of a group: the consumer's side of the protocol, for a coordinator in this process or in a cluster.

    join ─► sync ─► positions ─► held ── a rebalance began ──► join again
                                  │  ▲
                  commits, partitions given up, new topics

With the assignor cooperative-sticky, a member keeps its partitions while it rejoins, and gives up only partitions that
move to other members. With the other assignors, it gives up all partitions before it rejoins. The methods of
`coordination.membership.Membership` may be called from any thread; all others run in the member's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from topicfs.coordination import membership
from topicfs.coordination.groups import requests
from topicfs.coordination.groups.requests import JoinAnswer
from topicfs.coordination.groups.runtime.assignment import COOPERATIVE, assign, read_assignment, subscription
from topicfs.coordination.groups.runtime.commits import Commit, Commits
from topicfs.coordination.groups.timers import Timers
from topicfs.storage.config.group import GroupConfig
from topicfs.storage.errors import GroupError, InvalidPositionError, NotAssignedError
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)

UNSTABLE_RETRY_MS = 100
"""Interval for checking whether an open transaction may still change a position: Kafka's retry.backoff.ms."""


class KnownTopics(Protocol):
    """The topics that members read."""

    def partition_counts(self) -> Mapping[str, int]:
        """Return the number of partitions of each topic, as of the last `LocalMember.look_at_topics`."""

    def id_of(self, topic: str) -> str | None:
        """Return the present id of a topic, or None. A topic that was deleted and recreated has a new id."""

    def matching(self, wanted: membership.Subscription) -> frozenset[str]: ...


class TakenCommits(NamedTuple):
    """Positions that a coordinator is to commit for a member."""

    positions: Mapping[TopicPartition, membership.Position]
    answered: Callable[[Mapping[TopicPartition, Exception] | None], None]
    """Called with the errors by partition; with None if a rebalance is under way and the member has to commit later."""


class MemberCoordinator(Protocol):
    """A member's connection to its group's coordinator. It retries failed requests, or ends the `LocalMember`."""

    group: str
    topics: KnownTopics
    timers: Timers
    """The member's timers; their actions run in the member's thread."""
    rejoins_early: bool
    """True if a cooperative member rejoins after each `give_up`. False if it rejoins only after it has given up all
    partitions that are wanted back.
    """

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` in the member's thread; safe from any thread. Raises GroupError if that thread has ended."""

    def break_off(self) -> None:
        """Stop waiting for other members, because this member leaves. Safe from any thread."""

    def join(self, offered: requests.Protocol, max_poll_interval_ms: int | None) -> None:
        """Join or rejoin the group; the answer goes to `LocalMember.joined`."""

    def sync(self, joined: JoinAnswer, assignments: Mapping[str, bytes]) -> None:
        """Ask for the assignment; a leader also sends all assignments. `LocalMember.synced` gets the answer."""

    def fetch(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, membership.CommittedPosition], frozenset[TopicPartition]]:
        """Return the group's positions, and the partitions in which an open transaction may change the position."""

    def commit_soon(self, *, at_once: bool = False) -> None:
        """Commit `LocalMember.take_commits()` shortly, with other members' commits; without delay if `at_once`."""

    def commit_now(self) -> None:
        """Commit `LocalMember.take_commits()` before returning."""

    def leave(self) -> None:
        """Send the waiting commits, then leave the group."""

    def ended(self) -> None:
        """Forget the member, because it has ended."""


class LocalMember:
    """Implements `coordination.membership.Membership`."""

    def __init__(
        self,
        coordinator: MemberCoordinator,
        wanted: membership.Subscription,
        *,
        member_id: str = "",
        config: Callable[[], GroupConfig],
        listener: Callable[[], None],
    ) -> None:
        self.group = coordinator.group
        self.member_id = member_id
        self.generation = -1
        self.ended = False
        self.rejoins = True
        """True while a newer generation exists whose assignment the member does not have yet."""
        self._coordinator = coordinator
        self._known_topics = coordinator.topics
        self._wanted = wanted
        self._config = config
        self._listener = listener
        self._held = membership.MemberPartitions()
        self._commits = Commits()
        self._joining = self._again = self._leaves = False
        self._left: Future[None] = Future()
        self._given: frozenset[TopicPartition] = frozenset()
        """Partitions that the reader has given up, but that still belong to the member."""
        self._assignor = ""
        self._topics: frozenset[str] = frozenset()
        self._assigned_over: Mapping[str, int] = {}
        """The partition counts of all topics to which any member subscribes. Empty unless this member leads."""
        self._previous: frozenset[TopicPartition] = frozenset()
        """The partitions that an eager member held last. A sticky assignor tries to assign them to the member again."""
        self._unready: frozenset[TopicPartition] = frozenset()
        """Assigned partitions not held yet, because an open transaction may still change their position."""

    # Safe from any thread.

    def held(self) -> membership.MemberPartitions:
        return self._held

    def commit(
        self, positions: Mapping[TopicPartition, membership.Position], *, at_once: bool = False
    ) -> Future[None]:
        future: Future[None] = Future()
        error = self._held.lost
        try:
            membership.check_positions(self.group, positions)
        except InvalidPositionError as invalid:
            error = error or invalid
        if error is not None:
            future.set_exception(error)
        elif self._commits.add(Commit(dict(positions), future)) or at_once:
            try:
                self._coordinator.post(partial(self._commit_soon, at_once=at_once))
            except GroupError as closed:
                self._commits.fail(self._held.lost or closed)
        return future

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        with suppress(GroupError):
            self._coordinator.post(partial(self._give_up, frozenset(partitions)))

    def leave(self) -> Future[None]:
        self._leaves = True
        try:
            self._coordinator.post(self._leave)
            self._coordinator.break_off()
        except GroupError:
            self._has_left()
        return self._left

    def topics_changed(self) -> None:
        """Schedule `look_at_topics` in the member's thread."""
        with suppress(GroupError):
            self._coordinator.post(self.look_at_topics)

    @property
    def leaving(self) -> Future[None] | None:
        """The future that completes when the member has left; None if `leave` has not been called."""
        return self._left if self._leaves else None

    @property
    def stable_generation(self) -> int:
        """The generation of the member's present partitions; -1 while the member joins or has to join."""
        return -1 if self.rejoins else self._held.generation

    # Joining.

    def rejoin(self) -> None:
        """Join now. An eager member first asks the reader to give up all its partitions."""
        if self.ended:
            return
        self.rejoins = True
        if self._joining:
            self._again = True
        elif self._cooperative or not self._held.partitions:
            self._join()
        elif self._held.wanted_back != self._held.partitions:
            self._hold(self._held._replace(wanted_back=self._held.partitions))

    @property
    def _cooperative(self) -> bool:
        return self._assignor == COOPERATIVE

    def _join(self) -> None:
        config = self._config()
        self._joining, self._again = True, False
        self._drop_deleted()
        if not self._held.partitions:
            self._assignor = config.assignor
        self._topics = self._known_topics.matching(self._wanted)
        owned = self._held.partitions if self._cooperative else self._previous
        metadata = subscription(self._assignor, self._topics, owned, self.generation)
        self._coordinator.join(requests.Protocol(self._assignor, metadata), config.max_poll_interval_ms)

    def joined(self, answer: JoinAnswer) -> None:
        """Take part in a new generation: the leader computes the assignments, and all members sync."""
        if self.ended:
            return
        self.member_id, self.generation = answer.member_id, answer.generation
        self._assigned_over = {}
        assignments: Mapping[str, bytes] = {}
        if answer.leader == self.member_id and answer.protocol is not None:
            counts = self._known_topics.partition_counts()
            assignments, wanted = assign(answer.protocol, answer.members, counts)
            self._assigned_over = {topic: counts.get(topic, 0) for topic in wanted}
        self._coordinator.sync(answer, assignments)

    def synced(self, assignment: bytes) -> None:
        """Hold the assigned partitions."""
        if self.ended:
            return
        self._adopt(read_assignment(assignment))
        self._joining = self.rejoins = False
        if self._commits:
            self._coordinator.commit_soon()
        if self._again or self._topics_differ():
            self.rejoin()

    def retry(self) -> None:
        """Repeat the request that failed."""
        if self.ended:
            return
        self._joining = False
        self._take_given()
        if self.rejoins:
            self.rejoin()
        else:
            self._look_again()
        if self._commits:
            self._coordinator.commit_soon()

    def forget(self) -> None:
        """Drop the member id and all partitions: the coordinator has removed the member. `retry` then joins again."""
        self.member_id, self.generation, self.rejoins = "", -1, True
        self._previous = self._unready = self._given = frozenset()
        self._hold(membership.MemberPartitions())
        self.take_commits()  # Waiting commits fail: new holders start at the last committed positions.

    # Held partitions.

    def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        """Hold the assigned partitions, and ask the reader to give up all others."""
        held = self._held
        new = assigned - held.partitions
        ids = {topic: self._known_topics.id_of(topic) for topic in {one.topic for one in new}}
        found, self._unready = self._coordinator.fetch(sorted(new)) if new else ({}, frozenset())
        if self._unready:
            self._coordinator.timers.set(("unstable", self), UNSTABLE_RETRY_MS, self._look_again)
        ready = new - self._unready
        self._previous = assigned
        self._hold(
            membership.MemberPartitions(
                generation=self.generation,
                partitions=held.partitions | ready,
                wanted_back=held.partitions - assigned,
                positions=MappingProxyType({**held.positions, **{one: found.get(one) for one in ready}}),
                topic_ids=MappingProxyType(
                    {**held.topic_ids, **{topic: one for topic, one in ids.items() if one is not None}}
                ),
            )
        )

    def _look_again(self) -> None:
        """Check whether the transactions that may change positions have ended."""
        if self._unready and not self._joining:
            self._adopt((self._held.partitions - self._held.wanted_back) | self._unready)

    def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        self._given |= self._held.wanted_back.intersection(partitions)
        self._take_given()

    def _take_given(self) -> None:
        if not self._given:
            return
        self._coordinator.commit_now()
        given, self._given = self._given, frozenset()
        self._hold(self._held.without(given))
        if not self._held.wanted_back or (self._cooperative and self._coordinator.rejoins_early):
            self.rejoin()

    def _patience_ended(self) -> None:
        _LOGGER.info(
            "[GroupId %s] Member %s has not given up %d partitions within max.poll.interval.ms: it loses them.",
            self.group,
            self.member_id,
            len(self._held.wanted_back),
        )
        self._give_up(self._held.wanted_back)

    def _hold(self, held: membership.MemberPartitions) -> None:
        before, self._held = self._held, held
        self._limit_patience()
        same = before.partitions == held.partitions and before.wanted_back == held.wanted_back
        if same and held.lost is None and before.generation >= 0:
            return  # Only the generation has changed: call the group's listeners, but not this member's listener.
        try:
            self._listener()
        except Exception:  # the listener is called again after the next change
            _LOGGER.exception("a listener of group %s failed", self.group)

    def _limit_patience(self) -> None:
        timers, name = self._coordinator.timers, ("poll", self)
        limit = self._config().max_poll_interval_ms if self._held.wanted_back else None
        if limit is None:
            timers.cancel(name)
        elif name not in timers:
            timers.set(name, limit, self._patience_ended)

    # Created and deleted topics.

    def look_at_topics(self) -> None:
        """Apply created and deleted topics: drop the partitions of deleted topics, and rejoin for new topics."""
        if self.ended:
            return
        made_again = self._drop_deleted()
        if made_again or self._topics_differ() or (self.rejoins and not self._joining):
            self.rejoin()

    def _drop_deleted(self) -> bool:
        """Drop the partitions of deleted topics. Return whether one of these topics exists again, under a new id."""
        now, held = self._known_topics.id_of, self._held
        gone = {one for one in held.partitions if now(one.topic) != held.topic_ids.get(one.topic)}
        if gone:
            self._hold(held.without(gone))
            calls, _ = self._commits.take(self._is_held, self.group)  # Commits to deleted topics fail.
            self._commits.put_back(calls)
        return any(now(one.topic) is not None for one in gone)

    def _topics_differ(self) -> bool:
        """Return whether the subscription now matches different topics, or a wanted topic's partition count changed."""
        counts = self._known_topics.partition_counts()
        return self._known_topics.matching(self._wanted) != self._topics or any(
            counts.get(topic, 0) != number for topic, number in self._assigned_over.items()
        )

    # Commits.

    def _commit_soon(self, *, at_once: bool) -> None:
        if self.ended:
            self._commits.fail(self._held.lost or NotAssignedError(f"{self.group}: no longer a member"))
        else:
            self._coordinator.commit_soon(at_once=at_once)

    def take_commits(self) -> TakenCommits | None:
        """Return the positions of the waiting commit calls, if any."""
        calls, positions = self._commits.take(self._is_held, self.group)
        if not positions:
            for call in calls:
                call.answer({})
            return None
        return TakenCommits(positions, partial(self._committed, calls))

    def _is_held(self, partition: TopicPartition, position: membership.Position) -> bool:
        held = self._held
        known = held.topic_ids.get(partition.topic)
        return (
            partition in held.partitions
            and position.topic_id in ("", known)
            and known == self._known_topics.id_of(partition.topic)
        )

    def _committed(self, calls: list[Commit], errors: Mapping[TopicPartition, Exception] | None) -> None:
        if errors is None:
            self._commits.put_back(calls)  # Repeat the commits after the assignment.
            return
        for call in calls:
            call.answer(errors)

    # End.

    def _leave(self) -> None:
        try:
            if not self.ended:
                self._coordinator.leave()
        finally:
            self.end(NotAssignedError(f"{self.group}: left"))

    def end(self, reason: Exception) -> None:
        """End the membership because of `reason`."""
        if not self.ended:
            self.ended = True
            for timer in ("poll", "unstable"):
                self._coordinator.timers.cancel((timer, self))
            self._coordinator.ended()
            self._hold(membership.MemberPartitions(lost=reason))
            self._commits.fail(reason)
            self._has_left()

    def _has_left(self) -> None:
        with suppress(InvalidStateError):
            self._left.set_result(None)
