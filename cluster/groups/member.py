"""The connection of one member to its coordinator in a cluster: a thread that joins, heartbeats, commits and rejoins.

While the thread waits in a join or for an unreachable coordinator, the member's other requests wait. If the coordinator
removed the member, for example after a long pause, the member drops its partitions and joins as a new member.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from queue import Empty, SimpleQueue

from topicfs.cluster.brokers.brokers import Backoff
from topicfs.cluster.errors import NONE, REBALANCE_IN_PROGRESS, UNKNOWN_TOPIC_ID, UnreachableError, error_of
from topicfs.cluster.groups.requests import GIVEN_UP, GivenUpError, GroupClient, RebalanceError
from topicfs.cluster.protocol.connection import Connection
from topicfs.coordination.groups.requests import Code, JoinAnswer, Protocol
from topicfs.coordination.groups.runtime.member import KnownTopics, LocalMember
from topicfs.coordination.groups.timers import Timers
from topicfs.coordination.membership import CommittedPosition
from topicfs.storage.errors import GroupError, NotAssignedError, StorageError
from topicfs.storage.model import Timestamp, TopicPartition

_LOGGER = logging.getLogger(__name__)

HEARTBEAT_MS = 1_000
"""Heartbeat interval. A rebalance is noticed at a heartbeat, so this is shorter than the 3 s of Kafka's consumer."""
REBALANCE_MS = 300_000
"""Time limit for this member to rejoin in a rebalance, while the other members wait: Kafka's default of
max.poll.interval.ms.
"""


class ClusterCoordinator:
    """Implements `coordination.groups.runtime.member.MemberCoordinator` for a coordinator in a cluster."""

    rejoins_early = False

    def __init__(
        self, client: GroupClient, topics: KnownTopics, *, ended: Callable[[LocalMember], None]
    ) -> None:
        self.group = client.group
        self.topics = topics
        self.timers = Timers(lambda: Timestamp(time.monotonic_ns() // 1_000_000))
        self._client = client
        self._ended = ended
        self._member: LocalMember
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closed = False
        self._leaves = threading.Event()
        self._waiting: Connection | None = None
        """The connection of a join that waits for other members."""
        self._lock = threading.Lock()
        self._backoff = Backoff()
        self._pause_seconds: float | None = None
        """How long to wait before the member retries; None if no request has failed."""
        self._rebalance_ms = REBALANCE_MS

    def start(self, member: LocalMember) -> None:
        """Make the member join its group."""
        self._member = member
        threading.Thread(target=self._run, name=f"member of {self.group}", daemon=True).start()

    # Safe from any thread.

    def post(self, action: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise GroupError(f"{self.group}: no longer a member")
            self._inbox.put(action)

    def break_off(self) -> None:
        with self._lock:
            self._leaves.set()
            if self._waiting is not None:
                self._waiting.break_off()

    # The thread.

    def _run(self) -> None:
        self._guarded(self._member.rejoin)
        while not self._member.ended:
            if self._pause_seconds is None or self._leaves.is_set():
                self._guarded(self._next())
            else:
                self._leaves.wait(self._pause_seconds)
                self._pause_seconds = None
                self._guarded(self._retry)
        with self._lock:
            self._closed = True
        while not self._inbox.empty():
            self._guarded(self._inbox.get())

    def _next(self) -> Callable[[], object]:
        """Wait for the next action, and return it."""
        now, due = self.timers.clock(), self.timers.next_due()
        action = self.timers.take_due(now)
        if action is not None:
            return action
        try:
            return self._inbox.get(timeout=None if due is None else (due - now) / 1000)
        except Empty:
            return self._next()

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except GivenUpError as error:
            _LOGGER.info("[GroupId %s] %s; the member joins again as a new member.", self.group, error)
            self._member.forget()
            self._pause_seconds = 0.0
        except RebalanceError:
            self._pause_seconds = 0.0
        except UnreachableError:  # The member keeps its partitions while the coordinator is unreachable.
            self._client.forget_coordinator()
            self.timers.cancel("heartbeat")
            self._pause_seconds = self._backoff.next()
        except Exception as error:
            if not isinstance(error, StorageError | OSError):
                _LOGGER.exception("unexpected error in group %s", self.group)
            self._leave_group()
            self._member.end(error)

    def _retry(self) -> None:
        self._expect_heartbeat()
        self._member.retry()

    def _expect_heartbeat(self) -> None:
        self.timers.set("heartbeat", HEARTBEAT_MS, self._heartbeat)

    def _heartbeat(self) -> None:
        self._expect_heartbeat()
        try:
            self._client.heartbeat(self._member.member_id, self._member.generation)
        except RebalanceError:
            self._member.rejoin()
        self._backoff = Backoff()

    # Requests.

    def join(self, offered: Protocol, max_poll_interval_ms: int | None) -> None:
        self._rebalance_ms = max_poll_interval_ms or REBALANCE_MS
        member = self._member
        answer = self._client.join(member.member_id, offered, self._rebalance_ms, self._lend)
        if answer.code is Code.MEMBER_ID_REQUIRED:
            member.member_id = answer.member_id
            answer = self._client.join(member.member_id, offered, self._rebalance_ms, self._lend)
        member.joined(answer)

    def _lend(self, connection: Connection | None) -> None:
        with self._lock:
            self._waiting = connection
            if connection is not None and self._leaves.is_set():
                connection.break_off()

    def sync(self, joined: JoinAnswer, assignments: Mapping[str, bytes]) -> None:
        assignment = self._client.sync(joined, assignments, self._rebalance_ms)
        self._expect_heartbeat()
        self._member.synced(assignment)
        self._backoff = Backoff()

    def fetch(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, CommittedPosition], frozenset[TopicPartition]]:
        return self._client.fetch_stable(partitions)

    def commit_soon(self, *, at_once: bool = False) -> None:
        del at_once  # The next commit is sent as soon as the last commit is answered.
        self.commit_now()

    def commit_now(self) -> None:
        member = self._member
        taken = member.take_commits()
        if taken is None:
            return
        try:
            codes = self._client.commit(
                taken.positions, member.held().topic_ids, member.member_id, member.generation
            )
        except UnreachableError:
            taken.answered(None)
            raise
        except StorageError as error:
            taken.answered(dict.fromkeys(taken.positions, error))
            return
        if REBALANCE_IN_PROGRESS in codes.values():
            taken.answered(None)
            member.rejoins, self._pause_seconds = True, 0.0
            return
        taken.answered({one: self._error(one, code) for one, code in codes.items() if code != NONE})
        if not GIVEN_UP.isdisjoint(codes.values()):
            raise GivenUpError(f"member {member.member_id} was removed by its coordinator")

    def _error(self, place: TopicPartition, code: int) -> StorageError:
        if (
            code == UNKNOWN_TOPIC_ID
        ):  # The recreated topic appears in the catalog soon. The member then joins the group again.
            return NotAssignedError(f"{self.group}: {place}: its topic was deleted")
        return error_of(code, f"group {self.group}: {place}")

    # End.

    def leave(self) -> None:
        try:
            self.commit_now()
        except (StorageError, OSError, GivenUpError) as error:
            _LOGGER.info("[GroupId %s] the last commit failed: %s", self.group, error)
        self._leave_group()

    def _leave_group(self) -> None:
        member_id = self._member.member_id
        try:
            if member_id:
                self._client.leave(member_id, "the file was closed")
        except (StorageError, OSError) as error:
            _LOGGER.info(
                "[GroupId %s] %s could not leave: %s; its session times out.", self.group, member_id, error
            )

    def ended(self) -> None:
        self._ended(self._member)
