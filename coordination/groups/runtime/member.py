"""A member of a group: what a consumer does around a coordinator, in this process or in a cluster.

    join ─► sync ─► positions ─► held ── a rebalance began ──► join again
                                  │  ▲
                  commits, what is given up, topics that came

With cooperative-sticky it keeps what it holds while it joins again, and gives up only what others are to get. With the
other assignors it first gives up everything. All but the calls of `coordination.membership.Membership` runs in one
thread, that of the member's coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from topicfs.coordination.groups import requests
from topicfs.coordination.groups.requests import JoinAnswer
from topicfs.coordination.groups.runtime.assignment import COOPERATIVE, assign, read_assignment, subscription
from topicfs.coordination.groups.runtime.commits import Commit, Commits
from topicfs.coordination.groups.timers import Timers
from topicfs.coordination.membership import (
    CommittedPosition,
    MemberPartitions,
    Position,
    Subscription,
    check_positions,
)
from topicfs.storage.config.group import GroupConfig
from topicfs.storage.errors import GroupError, InvalidPositionError, NotAssignedError
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)

UNSTABLE_RETRY_MS = 100
"""Kafka's retry.backoff.ms: how often to look whether a transaction has decided a position."""


class KnownTopics(Protocol):
    """The topics that members read."""

    def partition_counts(self) -> Mapping[str, int]:
        """Return how many partitions each topic has, as the last `LocalMember.look_at_topics` saw them."""
        ...

    def id_of(self, topic: str) -> str | None:
        """Return the id of a topic now, None without one: a topic that was deleted and made again has another."""
        ...

    def matching(self, wanted: Subscription) -> frozenset[str]:
        """Return the topics that are subscribed to."""
        ...


class TakenCommits(NamedTuple):
    """Positions that a member is to commit."""

    positions: Mapping[TopicPartition, Position]
    answered: Callable[[Mapping[TopicPartition, Exception] | None], None]
    """Takes the errors by partition; None: a rebalance is under way, and the member commits later."""


class MemberCoordinator(Protocol):
    """The coordinator of a group, as one member of it reaches it.

    A request that fails ends the member (`LocalMember.end`), or the coordinator repeats it later (`LocalMember.retry`).
    """

    group: str
    topics: KnownTopics
    timers: Timers
    """For what the member waits for; their actions run in the member's thread."""
    rejoins_early: bool
    """True if a cooperative member joins again for each partition that it gives up, and not once for all of them."""

    def post(self, action: Callable[[], None]) -> None:
        """Have something done in the member's thread; from any thread. Raises GroupError once that has ended."""
        ...

    def break_off(self) -> None:
        """Wait for other members no longer, as this one leaves; from any thread."""
        ...

    def join(self, offered: requests.Protocol, max_poll_interval_ms: int | None) -> None:
        """Join the group, or join again: `LocalMember.joined` takes the answer."""
        ...

    def sync(self, joined: JoinAnswer, assignments: Mapping[str, bytes]) -> None:
        """Ask for the assignment, and as the leader bring all of them: `LocalMember.synced` takes the answer."""
        ...

    def fetch(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, CommittedPosition], frozenset[TopicPartition]]:
        """Return the group's positions, and in which partitions a transaction may still move them."""
        ...

    def commit_soon(self, *, at_once: bool = False) -> None:
        """Commit what `LocalMember.take_commits` returns, with commits of others that come soon unless `at_once`."""
        ...

    def commit_now(self) -> None:
        """Commit what `LocalMember.take_commits` returns."""
        ...

    def leave(self) -> None:
        """Commit what was asked for, and leave the group."""
        ...

    def ended(self) -> None:
        """Forget the member, which has ended."""
        ...


class LocalMember:
    """See `coordination.membership.Membership`."""

    def __init__(
        self,
        coordinator: MemberCoordinator,
        wanted: Subscription,
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
        """True until it holds what was assigned in the newest generation that it knows of."""
        self._coordinator = coordinator
        self._known_topics = coordinator.topics
        self._wanted = wanted
        self._config = config
        self._listener = listener
        self._held = MemberPartitions()
        self._commits = Commits()
        self._joining = self._again = self._leaves = False
        self._left: Future[None] = Future()
        self._given: frozenset[TopicPartition] = frozenset()
        """Given up by the reader, and not yet taken away."""
        self._assignor = ""
        self._topics: frozenset[str] = frozenset()
        self._assigned_over: Mapping[str, int] = {}
        """As leader: the numbers of partitions of the topics that any member wants."""
        self._previous: frozenset[TopicPartition] = frozenset()
        """The partitions that an eager member held last: sticky gives it back where it can."""
        self._unready: frozenset[TopicPartition] = frozenset()
        """Assigned, but a transaction may still move the position."""

    # From any thread.

    def held(self) -> MemberPartitions:
        return self._held

    def commit(self, positions: Mapping[TopicPartition, Position], *, at_once: bool = False) -> Future[None]:
        future: Future[None] = Future()
        error = self._held.lost
        try:
            check_positions(self.group, positions)
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
        """Look at the topics soon."""
        with suppress(GroupError):
            self._coordinator.post(self.look_at_topics)

    @property
    def leaving(self) -> Future[None] | None:
        """The end of the membership, if it was told to leave."""
        return self._left if self._leaves else None

    @property
    def settled_generation(self) -> int:
        """The generation in which it holds what it holds; -1 while it joins, or is to."""
        return -1 if self.rejoins else self._held.generation

    # Joining.

    def rejoin(self) -> None:
        """Join; an eager member when it has given everything up."""
        if self.ended:
            return
        self.rejoins = True
        if self._joining:
            self._again = True
        elif self._cooperative or not self._held.partitions:
            self._join()
        elif self._held.wanted_back != self._held.partitions:
            self._hold(replace(self._held, wanted_back=self._held.partitions))

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
        """Go on with a generation that began."""
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
        """Hold what was assigned."""
        if self.ended:
            return
        self._adopt(read_assignment(assignment))
        self._joining = self.rejoins = False
        if self._commits:
            self._coordinator.commit_soon()
        if self._again or self._topics_differ():
            self.rejoin()

    def retry(self) -> None:
        """Do again what the coordinator did not do."""
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
        """Hold nothing any longer: the coordinator knows the member no longer. `retry` joins as a new one."""
        self.member_id, self.generation, self.rejoins = "", -1, True
        self._previous = self._unready = self._given = frozenset()
        self._hold(MemberPartitions())
        self.take_commits()  # They fail: others go on from what was committed before.

    # What it holds.

    def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        """Hold what was assigned, and want back what was not."""
        held = self._held
        new = assigned - held.partitions
        ids = {topic: self._known_topics.id_of(topic) for topic in {one.topic for one in new}}
        found, self._unready = self._coordinator.fetch(sorted(new)) if new else ({}, frozenset())
        if self._unready:
            self._coordinator.timers.set(("unstable", self), UNSTABLE_RETRY_MS, self._look_again)
        ready = new - self._unready
        self._previous = assigned
        self._hold(
            MemberPartitions(
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
        """See whether the transactions that may move positions have ended."""
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
            "[GroupId %s] Member %s has not given up %d partitions within max.poll.interval.ms: they are taken.",
            self.group,
            self.member_id,
            len(self._held.wanted_back),
        )
        self._give_up(self._held.wanted_back)

    def _hold(self, held: MemberPartitions) -> None:
        before, self._held = self._held, held
        self._limit_patience()
        same = before.partitions == held.partitions and before.wanted_back == held.wanted_back
        if same and held.lost is None and before.generation >= 0:
            return  # The generation alone, of which the group's listeners are told.
        try:
            self._listener()
        except Exception:  # it is told once more with the next change
            _LOGGER.exception("a listener of the group %s", self.group)

    def _limit_patience(self) -> None:
        timers, name = self._coordinator.timers, ("poll", self)
        limit = self._config().max_poll_interval_ms if self._held.wanted_back else None
        if limit is None:
            timers.cancel(name)
        elif name not in timers:
            timers.set(name, limit, self._patience_ended)

    # Topics that come and go.

    def look_at_topics(self) -> None:
        """Take the topics as they are now: drop what was deleted, and join again for what came."""
        if self.ended:
            return
        made_again = self._drop_deleted()
        if made_again or self._topics_differ() or (self.rejoins and not self._joining):
            self.rejoin()

    def _drop_deleted(self) -> bool:
        """Hold no partition of a deleted topic any longer; return whether any of these topics was made again."""
        now, held = self._known_topics.id_of, self._held
        gone = {one for one in held.partitions if now(one.topic) != held.topic_ids.get(one.topic)}
        if gone:
            self._hold(held.without(gone))
            calls, _ = self._commits.take(self._is_held, self.group)  # Those of deleted topics fail.
            self._commits.put_back(calls)
        return any(now(one.topic) is not None for one in gone)

    def _topics_differ(self) -> bool:
        """Return whether the subscription matches other topics now, or a leader would assign other partitions."""
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
        """Return what is to be committed for the calls so far."""
        calls, positions = self._commits.take(self._is_held, self.group)
        if not positions:
            for call in calls:
                call.answer({})
            return None
        return TakenCommits(positions, partial(self._committed, calls))

    def _is_held(self, partition: TopicPartition, position: Position) -> bool:
        held = self._held
        known = held.topic_ids.get(partition.topic)
        return (
            partition in held.partitions
            and position.topic_id in ("", known)
            and known == self._known_topics.id_of(partition.topic)
        )

    def _committed(self, calls: list[Commit], errors: Mapping[TopicPartition, Exception] | None) -> None:
        if errors is None:
            self._commits.put_back(calls)  # Until the assignment has come.
            return
        for call in calls:
            call.answer(errors)

    # The end.

    def _leave(self) -> None:
        try:
            if not self.ended:
                self._coordinator.leave()
        finally:
            self.end(NotAssignedError(f"{self.group}: left"))

    def end(self, reason: Exception) -> None:
        """Be a member no longer."""
        if not self.ended:
            self.ended = True
            for timer in ("poll", "unstable"):
                self._coordinator.timers.cancel((timer, self))
            self._coordinator.ended()
            self._hold(MemberPartitions(lost=reason))
            self._commits.fail(reason)
            self._has_left()

    def _has_left(self) -> None:
        with suppress(InvalidStateError):
            self._left.set_result(None)
