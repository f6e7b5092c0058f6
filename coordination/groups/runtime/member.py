"""A member of a group that lives in this process: what a consumer does around a coordinator, without a network.

It joins again at once whenever a rebalance begins. With cooperative-sticky it keeps what it holds meanwhile, and gives
up only what others are to get; with the other assignors it first gives up everything. Nobody has to send heartbeats:
the one that opened it says when it ends. All but the calls of `coordination.membership.Membership` runs in the runner's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from topicfs.coordination.groups.group import COMPLETING, PREPARING
from topicfs.coordination.groups.requests import (
    Code,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    OffsetCommitRequest,
    Protocol,
    RequestError,
    SyncAnswer,
    SyncRequest,
    Write,
)
from topicfs.coordination.groups.runtime.assignment import COOPERATIVE, assign, read_assignment, subscription
from topicfs.coordination.groups.runtime.commits import Commit, Commits, error_of, shown_position
from topicfs.coordination.groups.runtime.runner import Runner
from topicfs.coordination.groups.runtime.shard import Shard
from topicfs.coordination.membership import (
    CommittedPosition,
    MemberPartitions,
    Position,
    Subscription,
    check_positions,
)
from topicfs.storage.config.group import GroupConfig
from topicfs.storage.errors import (
    GroupError,
    IncompatibleMemberError,
    InvalidPositionError,
    NotAssignedError,
    StorageError,
)
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)

NO_LIMIT_MS = 2**31 - 1
"""The rebalance timeout of readers that may take as long as they like: what Kafka's field holds at most."""
RETRY_MS = 1_000
"""After so long a member joins again where the group could not be written, as on a full disk."""
UNSTABLE_RETRY_MS = 100
"""Kafka's retry.backoff.ms: how often to look whether a transaction has decided a position."""


class MemberName(NamedTuple):
    """The names of a member, as tools show them."""

    member_id: str
    client_id: str
    reader: str
    """The program that reads."""


class EmbeddedMember:
    """See `coordination.membership.Membership`."""

    def __init__(
        self,
        runner: Runner,
        group: str,
        wanted: Subscription,
        *,
        name: MemberName,
        config: Callable[[], GroupConfig],
        listener: Callable[[], None],
    ) -> None:
        self.group = group
        self.member_id = name.member_id
        self.shard: Shard
        self._runner = runner
        self._wanted = wanted
        self._client_id = name.client_id
        self._reader = name.reader
        self._config = config
        self._assignor = ""
        self._listener = listener
        self._held = MemberPartitions()
        self._commits = Commits()
        self._begun = self._joining = self._again = self._retrying = False
        self._generation = -1
        self._topics: frozenset[str] = frozenset()
        self._assigned_over: Mapping[str, int] = {}
        """As leader: the numbers of partitions that were assigned."""
        self._previous: frozenset[TopicPartition] = frozenset()
        """The partitions that an eager member held last: sticky gives it back where it can."""
        self._unready: frozenset[TopicPartition] = frozenset()
        """Assigned, but a transaction may still move the position."""

    # From any thread.

    def held(self) -> MemberPartitions:
        return self._held

    def commit(self, positions: Mapping[TopicPartition, Position], *, at_once: bool = False) -> Future[None]:
        future: Future[None] = Future()
        lost = self._held.lost
        if lost is not None:
            future.set_exception(lost)
            return future
        try:
            check_positions(self.group, positions)
        except InvalidPositionError as error:
            future.set_exception(error)
            return future
        if self._commits.add(Commit(dict(positions), future)) or at_once:
            try:
                self._runner.post(partial(self._commit_soon, at_once=at_once))
            except GroupError as error:
                self._commits.fail(error)
        return future

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        given = frozenset(partitions)
        with suppress(GroupError):
            self._runner.post(lambda: self._give_up(given))

    def leave(self) -> Future[None]:
        future: Future[None] = Future()

        def leave() -> None:
            try:
                self._leave()
            finally:
                future.set_result(None)

        try:
            self._runner.post(leave)
        except GroupError:
            future.set_result(None)
        return future

    # Joining.

    def begin(self) -> None:
        """Join for the first time."""
        try:
            self.shard = self._runner.shard_to_write(self.group)
            if self._runner.is_other(self.group):
                raise IncompatibleMemberError(f"{self.group}: a group of another protocol has that name")
        except (StorageError, OSError) as error:
            self._hold(MemberPartitions(lost=error))
            return
        self._begun = True
        self._runner.members.setdefault(self.group, {})[self.member_id] = self
        self._join("")

    def rebalance(self) -> None:
        """Take part in a rebalance that began."""
        group = self.shard.coordinator.find(self.group)
        if group is None or group.state is not PREPARING or self._retrying or self._joining:
            return
        member = group.members.get(self.member_id)
        if member is not None and member.join_reply is None:
            self._rejoin()

    def _rejoin(self) -> None:
        """Join again: an eager member when it has given everything up."""
        if self._joining:
            self._again = True
        elif self._cooperative or not self._held.partitions:
            self._join(self.member_id)
        else:
            self._want_back(self._held.partitions)

    @property
    def _cooperative(self) -> bool:
        return self._assignor == COOPERATIVE

    def _join(self, member_id: str) -> None:
        self._joining, self._again = True, False
        self._assignor = self._config().assignor
        self._topics = self._matching()
        owned = self._held.partitions if self._cooperative else self._previous
        metadata = subscription(self._assignor, self._topics, owned, self._generation)
        limit = self._config().max_poll_interval_ms
        request = JoinRequest(
            group=self.group,
            member_id=member_id,
            proposed_id=self.member_id,
            client_id=self._client_id,
            reader=self._reader,
            rebalance_timeout_ms=NO_LIMIT_MS if limit is None else limit,
            protocols=(Protocol(self._assignor, metadata),),
            heartbeats=False,
        )
        self.shard.append(
            [self.shard.coordinator.join(request, lambda one: self._runner.later(lambda: self._joined(one)))]
        )

    def _matching(self) -> frozenset[str]:
        runner = self._runner
        wanted = (
            name
            for name in runner.partition_counts()
            if self._wanted.wants(name, internal=runner.internal(name))
        )
        return frozenset(wanted) | self._wanted.topics

    def _joined(self, answer: JoinAnswer) -> None:
        if not self._begun:
            return  # It has left meanwhile.
        if answer.code is not Code.NONE:
            self._joining = False
            self._refused(answer.code)
            return
        self._generation = answer.generation
        assignments: Mapping[str, bytes] = {}
        if answer.leader == self.member_id and answer.protocol is not None:
            counts = self._runner.partition_counts()
            assignments = assign(answer.protocol, answer.members, counts)
            self._assigned_over = counts
        request = SyncRequest(
            group=self.group,
            member_id=self.member_id,
            generation=answer.generation,
            assignments=assignments,
        )
        self.shard.append(
            [self.shard.coordinator.sync(request, lambda one: self._runner.later(lambda: self._synced(one)))]
        )

    def _synced(self, answer: SyncAnswer) -> None:
        if not self._begun:
            return
        self._joining = False
        if answer.code is Code.REBALANCE_IN_PROGRESS:
            self._rejoin()
        elif answer.code is not Code.NONE:
            self._refused(answer.code)
        else:
            self._adopt(read_assignment(answer.assignment))
            if self._commits:
                self._runner.commit_soon(self)
            if self._again or self._topics_differ():
                self._rejoin()

    def _refused(self, code: Code) -> None:
        """Try again later where another attempt may succeed; else it is a member no longer."""
        known = self.shard.coordinator.find(self.group)
        if known is not None and self.member_id in known.members:
            self._retrying = True
            self._runner.timers.set(("retry", self), RETRY_MS, self._retry)
            return
        self.end(error_of(code, self.group, self.shard.cause))

    def _retry(self) -> None:
        self._retrying = False
        if self._begun and not self._joining:
            self._rejoin()

    # What it holds.

    def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        """Hold what was assigned, and give up what was not."""
        held = self._held
        kept = held.partitions
        ready: dict[TopicPartition, CommittedPosition | None] = {}
        unready, topics = set(), self._runner.engine.topics()
        ids = {one.topic: topics[one.topic].topic_id for one in assigned - kept if one.topic in topics}
        for partition in assigned - kept:
            try:
                stored = self.shard.offsets.fetch(self.group, partition, require_stable=True)
                ready[partition] = None if stored is None else shown_position(stored)
            except RequestError:
                unready.add(partition)
        self._unready = frozenset(unready)
        if unready:
            self._runner.timers.set(("unstable", self), UNSTABLE_RETRY_MS, self._look_again)
        self._previous = assigned
        self._hold(
            MemberPartitions(
                generation=self._generation,
                partitions=kept | ready.keys(),
                wanted_back=kept - assigned,
                positions=MappingProxyType({**held.positions, **ready}),
                topic_ids=MappingProxyType({**held.topic_ids, **ids}),
            )
        )
        self._limit_patience()

    def _look_again(self) -> None:
        """See whether the transactions that may move positions have ended."""
        if self._begun and self._unready and not self._joining:
            self._adopt((self._held.partitions - self._held.wanted_back) | self._unready)

    def _want_back(self, partitions: frozenset[TopicPartition]) -> None:
        if self._held.wanted_back != partitions:
            self._hold(replace(self._held, wanted_back=partitions))
            self._limit_patience()

    def _limit_patience(self) -> None:
        limit = self._config().max_poll_interval_ms
        if not self._held.wanted_back or limit is None:
            self._runner.timers.cancel(("poll", self))
        elif ("poll", self) not in self._runner.timers:
            self._runner.timers.set(("poll", self), limit, self._patience_ended)

    def _patience_ended(self) -> None:
        self.shard.log.info(
            "Member %s in group %s has not given up %d partitions within max.poll.interval.ms: they are taken.",
            self.member_id,
            self.group,
            len(self._held.wanted_back),
        )
        self._give_up(self._held.wanted_back)

    def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        given = partitions & self._held.wanted_back
        if not given:
            return
        self._commit_now()
        self._hold(self._held.without(given))
        if self._held.wanted_back and not self._cooperative:
            return
        if not self._held.wanted_back:
            self._runner.timers.cancel(("poll", self))
        self._rejoin()

    def _hold(self, held: MemberPartitions) -> None:
        before, self._held = self._held, held
        same = before.partitions == held.partitions and before.wanted_back == held.wanted_back
        if same and held.lost is None and before.generation >= 0:
            return  # The generation alone, of which the group's listeners are told.
        try:
            self._listener()
        except Exception:  # it is told once more with the next change
            _LOGGER.exception("a listener of the group %s", self.group)

    # Topics that come and go.

    def topics_changed(self, deleted: Collection[str]) -> None:
        gone = {one for one in self._held.partitions if one.topic in deleted}
        if gone:
            self._hold(self._held.without(gone))
        made_again = {one.topic for one in gone} & self._runner.partition_counts().keys()
        if made_again or self._topics_differ():
            self._rejoin()

    def _topics_differ(self) -> bool:
        """Return whether the subscription matches other topics now, or a leader would assign other partitions."""
        if self._matching() != self._topics:
            return True
        group = self.shard.coordinator.find(self.group)
        if group is None or group.leader != self.member_id or group.state in (PREPARING, COMPLETING):
            return False
        now, then = self._runner.partition_counts(), self._assigned_over
        return any(now.get(one) != then.get(one) for one in group.subscribed or ())

    # Commits.

    def _commit_soon(self, *, at_once: bool) -> None:
        if self._begun:
            self._runner.commit_soon(self, at_once=at_once)
        else:
            self._commits.fail(self._held.lost or NotAssignedError(f"{self.group}: not a member yet"))

    def _commit_now(self) -> None:
        if self._commits:
            self.shard.append([self.take_commits()])

    def take_commits(self) -> Write | None:
        """Return what is to be written for the calls so far."""
        topics = self._runner.engine.topics()
        calls, positions = self._commits.take(
            self._held.partitions,
            self.group,
            lambda name: topics[name].topic_id if name in topics else None,
        )
        if not positions:
            for call in calls:
                call.done()
            return None
        request = OffsetCommitRequest(
            group=self.group, positions=positions, member_id=self.member_id, generation=self._generation
        )
        return self.shard.commit(request, lambda codes: self._committed(calls, codes))

    def _committed(self, calls: list[Commit], codes: Code | Mapping[TopicPartition, Code]) -> None:
        if codes is Code.REBALANCE_IN_PROGRESS:
            self._commits.put_back(calls)  # Until the assignment has come.
            return
        for call in calls:
            call.answer(codes, self.group, self.shard.cause)

    # The end.

    def _leave(self) -> None:
        if not self._begun:
            if self._held.lost is None:
                self._held = MemberPartitions(lost=NotAssignedError(f"{self.group}: left"))
            return
        self._commit_now()
        shard = self.shard
        self.end(NotAssignedError(f"{self.group}: left"))
        leaving = LeavingMember(self.member_id, reason="the file was closed")
        shard.append([shard.coordinator.leave(self.group, [leaving], lambda _: None)])

    def end(self, reason: Exception) -> None:
        """Be a member no longer."""
        if not self._begun:
            return
        self._begun = False
        own = self._runner.members.get(self.group, {})
        own.pop(self.member_id, None)
        if not own:
            self._runner.members.pop(self.group, None)
        for timer in ("poll", "retry", "unstable"):
            self._runner.timers.cancel((timer, self))
        self._hold(MemberPartitions(lost=reason))
        self._commits.fail(reason)
