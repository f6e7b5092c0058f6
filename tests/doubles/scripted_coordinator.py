"""A coordinator that gives one member preset answers. It replaces `cluster.groups.requests.GroupClient`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from topicfs.cluster.errors import NONE, UNKNOWN_MEMBER_ID, UnreachableError
from topicfs.cluster.groups.requests import check_member
from topicfs.coordination.groups.requests import Code, JoinAnswer, JoinedMember, Protocol
from topicfs.coordination.groups.runtime.assignment import read_assignment
from topicfs.coordination.membership import CommittedPosition, Position
from topicfs.coordination.records.consumer_protocol import ASSIGNMENT, write_versioned
from topicfs.storage.model import Offset, TopicPartition


def assignment(*numbers: int) -> bytes:
    """Return an assignment of partitions of `orders`."""
    return write_versioned(
        ASSIGNMENT, {"assignedPartitions": [{"topic": "orders", "partitions": list(numbers)}]}
    )


class ScriptedCoordinator:
    """A coordinator with preset answers. `calls` has a tuple for each request; the first item is the request's name."""

    group = "g"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.assigned: tuple[int, ...] = (0, 1)
        """The partitions that the next SyncGroup answer assigns to the member."""
        self.leads = False
        self.generation = 0
        self.unreachable = False
        self.heartbeats: deque[int] = deque()
        """The error codes of the next heartbeat answers."""
        self.commits: deque[int] = deque()
        """The error codes of the next commit answers."""
        self.unstable: set[int] = set()
        """Partitions whose committed position an open transaction may still change."""
        self.committed: dict[int, int] = {}
        self._changed = threading.Condition()

    def asked(self, word: str) -> list[tuple[Any, ...]]:
        with self._changed:
            return [call[1:] for call in self.calls if call[0] == word]

    def _note(self, *call: Any) -> None:
        with self._changed:
            self.calls.append(call)
            if self.unreachable:
                raise UnreachableError("the coordinator is away")

    def join(
        self, member_id: str, protocol: Protocol, rebalance_ms: int, lent: Callable[[None], None]
    ) -> JoinAnswer:
        del rebalance_ms
        lent(None)
        self._note("join", member_id, protocol.name)
        if not member_id:
            count = len({one for (one, _) in self.asked("join") if one})
            return JoinAnswer(code=Code.MEMBER_ID_REQUIRED, member_id=f"m-{count + 1}")
        self.generation += 1
        return JoinAnswer(
            member_id=member_id,
            generation=self.generation,
            protocol=protocol.name,
            leader=member_id if self.leads else "another",
            members=(JoinedMember(member_id, None, protocol.metadata),) if self.leads else (),
        )

    def sync(self, joined: JoinAnswer, assignments: Mapping[str, bytes], rebalance_ms: int) -> bytes:
        del rebalance_ms
        self._note("sync", joined.member_id, {one: read_assignment(own) for one, own in assignments.items()})
        return assignments.get(joined.member_id) or assignment(*self.assigned)

    def heartbeat(self, member_id: str, generation: int) -> None:
        self._note("heartbeat", member_id, generation)
        check_member(self.heartbeats.popleft() if self.heartbeats else NONE, self.group)

    def leave(self, member_id: str, reason: str) -> None:
        del reason
        self._note("leave", member_id)

    def commit(
        self,
        positions: Mapping[TopicPartition, Position],
        ids: Mapping[str, str],
        member_id: str,
        generation: int,
    ) -> dict[TopicPartition, int]:
        assert {one.topic for one in positions} <= ids.keys()
        offsets = {place.partition: one.offset for place, one in positions.items()}
        self._note("commit", offsets, member_id, generation)
        code = self.commits.popleft() if self.commits else NONE
        if code == NONE:
            self.committed |= offsets
        return dict.fromkeys(positions, code)

    def fetch_stable(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, CommittedPosition], frozenset[TopicPartition]]:
        self._note("fetch", tuple(sorted(one.partition for one in partitions)))
        unstable = frozenset(one for one in partitions if one.partition in self.unstable)
        found = {
            one: CommittedPosition(Offset(self.committed[one.partition]))
            for one in partitions
            if one not in unstable and one.partition in self.committed
        }
        return found, unstable

    def forget_coordinator(self) -> None:
        self.calls.append(("forget",))

    def give_up(self) -> None:
        """Answer the next heartbeat with UNKNOWN_MEMBER_ID, as if the member had been removed."""
        self.heartbeats.append(UNKNOWN_MEMBER_ID)
