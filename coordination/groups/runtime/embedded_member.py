"""A member's coordinator in this process: passes the member's requests to its group's shard, in the runner's thread.

No heartbeats are needed: the program that opened the member ends it, and the runner announces rebalances.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from topicfs.coordination.groups import requests
from topicfs.coordination.groups.group import PREPARING
from topicfs.coordination.groups.runtime.commits import error_of, position_error, shown_position
from topicfs.coordination.groups.runtime.member import KnownTopics, LocalMember
from topicfs.coordination.groups.runtime.runner import Runner
from topicfs.coordination.groups.runtime.shard import Shard
from topicfs.coordination.membership import CommittedPosition
from topicfs.storage.errors import IncompatibleMemberError, StorageError
from topicfs.storage.model import TopicPartition

NO_LIMIT_MS = 2**31 - 1
"""The rebalance timeout of readers without a time limit: the maximum of Kafka's field."""
RETRY_MS = 1_000
"""Delay before a member rejoins after the group could not be written, for example on a full disk."""


class EmbeddedCoordinator:
    """Implements `coordination.groups.runtime.member.MemberCoordinator` for a coordinator in this process."""

    rejoins_early = True

    def __init__(self, runner: Runner, group: str, *, client_id: str, reader: str) -> None:
        self.group = group
        self.topics: KnownTopics = runner
        self.timers = runner.timers
        self.member: LocalMember
        self.shard: Shard
        self._runner = runner
        self._client_id = client_id
        self._reader = reader
        self._has_asked = False

    def start(self, member: LocalMember) -> None:
        """Make the member join its group."""
        self.member = member
        self._runner.post(self._begin)

    def _begin(self) -> None:
        try:
            self.shard = self._runner.shard_to_write(self.group)
            if self._runner.is_other(self.group):
                raise IncompatibleMemberError(f"{self.group}: a group of another protocol has this name")
        except (StorageError, OSError) as error:
            self.member.end(error)
            return
        self._runner.members.setdefault(self.group, {})[self.member.member_id] = self
        self.member.rejoin()

    def post(self, action: Callable[[], None]) -> None:
        self._runner.post(action)

    def break_off(self) -> None:
        """Do nothing: the runner's thread never waits for other members of a group."""

    def rebalance(self) -> None:
        """Rejoin if a rebalance waits for this member."""
        group = self.shard.coordinator.find(self.group)
        if group is not None and group.state is PREPARING:
            known = group.members.get(self.member.member_id)
            if known is not None and known.join_reply is None:
                self.member.rejoin()

    def join(self, offered: requests.Protocol, max_poll_interval_ms: int | None) -> None:
        request = requests.JoinRequest(
            group=self.group,
            member_id=self.member.member_id if self._has_asked else "",
            proposed_id=self.member.member_id,
            client_id=self._client_id,
            reader=self._reader,
            rebalance_timeout_ms=NO_LIMIT_MS if max_poll_interval_ms is None else max_poll_interval_ms,
            session_timeout_ms=requests.NO_SESSION_MS,
            protocols=(offered,),
            heartbeats=False,
        )
        self._has_asked = True
        self.shard.append(
            [self.shard.coordinator.join(request, lambda one: self._runner.later(lambda: self._joined(one)))]
        )

    def _joined(self, answer: requests.JoinAnswer) -> None:
        if answer.code is requests.Code.NONE:
            self.member.joined(answer)
        else:
            self._refused(answer.code)

    def sync(self, joined: requests.JoinAnswer, assignments: Mapping[str, bytes]) -> None:
        request = requests.SyncRequest(
            group=self.group,
            member_id=joined.member_id,
            generation=joined.generation,
            assignments=assignments,
        )
        self.shard.append(
            [self.shard.coordinator.sync(request, lambda one: self._runner.later(lambda: self._synced(one)))]
        )

    def _synced(self, answer: requests.SyncAnswer) -> None:
        if answer.code is requests.Code.REBALANCE_IN_PROGRESS:
            self.member.retry()
        elif answer.code is requests.Code.NONE:
            self.member.synced(answer.assignment)
        else:
            self._refused(answer.code)

    def _refused(self, code: requests.Code) -> None:
        """Repeat the refused request later if the group still has the member; otherwise end the member."""
        known = self.shard.coordinator.find(self.group)
        if known is None or self.member.member_id not in known.members:
            offered = frozenset() if known is None else known.common_protocols()
            self.member.end(error_of(code, self.group, self.shard.cause, offered))
        elif not self.member.ended:
            self.timers.set(("retry", self), RETRY_MS, self.member.retry)

    def fetch(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, CommittedPosition], frozenset[TopicPartition]]:
        found, unready = {}, set()
        for partition in partitions:
            try:
                stored = self.shard.offsets.fetch(self.group, partition, require_stable=True)
                if stored is not None:
                    found[partition] = shown_position(stored)
            except requests.RequestError:
                unready.add(partition)
        return found, frozenset(unready)

    def commit_soon(self, *, at_once: bool = False) -> None:
        self._runner.commit_soon(self, at_once=at_once)

    def commit_now(self) -> None:
        self.shard.append([self.take_commits()])

    def take_commits(self) -> requests.Write | None:
        """Return the write of the member's waiting commits, if any."""
        taken = self.member.take_commits()
        if taken is None:
            return None
        request = requests.OffsetCommitRequest(
            group=self.group,
            positions=taken.positions,
            member_id=self.member.member_id,
            generation=self.member.generation,
        )
        return self.shard.commit(request, lambda codes: taken.answered(self._errors(request, codes)))

    def _errors(
        self,
        request: requests.OffsetCommitRequest,
        codes: requests.Code | Mapping[TopicPartition, requests.Code],
    ) -> Mapping[TopicPartition, Exception] | None:
        if codes is requests.Code.REBALANCE_IN_PROGRESS:
            return None
        if isinstance(codes, requests.Code):
            return dict.fromkeys(request.positions, error_of(codes, self.group, self.shard.cause))
        return {
            place: position_error(code, self.group, place)
            for place, code in codes.items()
            if code is not requests.Code.NONE
        }

    def leave(self) -> None:
        self.commit_now()
        leaving = requests.LeavingMember(self.member.member_id, reason="the file was closed")
        self.shard.append([self.shard.coordinator.leave(self.group, [leaving], lambda _: None)])

    def ended(self) -> None:
        self.timers.cancel(("retry", self))
        own = self._runner.members.get(self.group, {})
        own.pop(self.member.member_id, None)
        if not own:
            self._runner.members.pop(self.group, None)
