"""A group coordinator with a manual clock, whose log is a list and can refuse appends."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from tests.doubles.manual_clock import ManualClock
from topicfs.coordination.groups import requests
from topicfs.coordination.groups.coordinator import GroupCoordinator
from topicfs.coordination.groups.group import Group
from topicfs.coordination.groups.offsets import NO_TOPIC_ID, OffsetStore, StoredOffset
from topicfs.coordination.groups.rebalance import GroupLimits
from topicfs.coordination.groups.timers import Timers
from topicfs.coordination.membership import Position
from topicfs.coordination.records.consumer_protocol import SUBSCRIPTION, write_versioned
from topicfs.coordination.records.group_records import read_key, read_value
from topicfs.storage.model import NO_PRODUCER_ID, Offset, ProducerId, TopicPartition

G = "group"
T0 = TopicPartition("t", 0)
SESSION_MS = 10_000
REBALANCE_MS = 30_000
DELAY_MS = 3_000


def subscribed(*topics: str) -> bytes:
    """Return the metadata that a consumer subscribed to `topics` sends when it joins."""
    return write_versioned(SUBSCRIPTION, {"topics": sorted(topics)})


RANGE = requests.Protocol("range", subscribed("t"))
ROUND_ROBIN = requests.Protocol("roundrobin", subscribed("t"))


class Coordination:
    """One coordinator and the log that it writes. Each request returns a list, to which the answer is later added."""

    def __init__(
        self,
        *,
        delay_ms: int = 0,
        max_size: int = 2**31 - 1,
        retention_ms: int = 86_400_000,
        ids: Iterator[int] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.log: list[requests.KeyValue] = []
        self.refuse: requests.Code | None = None
        """The error code with which every append fails; None: appends succeed."""
        self.topics: dict[TopicPartition, uuid.UUID] = {TopicPartition("t", n): NO_TOPIC_ID for n in range(4)}
        limits = GroupLimits(
            initial_rebalance_delay_ms=delay_ms, max_size=max_size, retention_ms=retention_ms
        )
        self.limits = limits
        self.ids = count(1) if ids is None else ids
        logger = logging.getLogger("tests.groups")
        self.coordinator = GroupCoordinator(
            Timers(self.clock), limits=limits, log=logger, new_id=lambda: str(next(self.ids))
        )
        self.offsets = OffsetStore(limits, self.topics.get, logger)

    # The clock and the log that the coordinator uses.

    def append(self, write: requests.Write | None) -> None:
        if write is None:
            return
        if self.refuse is not None:
            write.written(self.refuse, Offset(-1))
            return
        first = Offset(len(self.log))
        self.log.extend(write.records)
        write.written(requests.Code.NONE, first)

    def advance(self, milliseconds: int) -> None:
        """Advance the clock, and run the action of each timer that becomes due, at its time."""
        timers, end = self.coordinator.timers, self.clock.now + milliseconds
        while (due := timers.next_due()) is not None and due <= end:
            self.clock.now = max(self.clock.now, due)
            action = timers.take_due(self.clock())
            assert action is not None
            self.append(action())
        self.clock.now = end

    @property
    def group(self) -> Group:
        return self.coordinator.groups[G]

    def written(self) -> list[tuple[int, Mapping[str, object], Mapping[str, object] | None]]:
        """Return the type, key and value of each record in the log; the value of a tombstone is None."""
        found = []
        for key, value in self.log:
            known = read_key(key)
            assert known is not None
            found.append((*known, None if value is None else read_value(known[0], value)[1]))
        return found

    # Requests.

    def join(self, member_id: str = "", **fields: object) -> list[requests.JoinAnswer]:
        answers: list[requests.JoinAnswer] = []
        given = {
            "group": G,
            "client_id": "client",
            "protocols": (RANGE,),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
        }
        request = requests.JoinRequest(member_id=member_id, **{**given, **fields})  # type: ignore[arg-type]
        self.append(self.coordinator.join(request, answers.append))
        return answers

    def join_known(self, **fields: object) -> tuple[str, list[requests.JoinAnswer]]:
        """Join as present clients do: get a member id, then join again with it."""
        (first,) = self.join(**fields)
        assert first.code is requests.Code.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **fields)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        **fields: object,
    ) -> list[requests.SyncAnswer]:
        answers: list[requests.SyncAnswer] = []
        request = requests.SyncRequest(
            group=G,
            member_id=member_id,
            generation=generation,
            assignments=assignments or {},
            **fields,  # type: ignore[arg-type]
        )
        self.append(self.coordinator.sync(request, answers.append))
        return answers

    def heartbeat(self, member_id: str, generation: int) -> requests.Code:
        return self.coordinator.heartbeat(G, member_id, generation)

    def leave(self, *members: str | requests.LeavingMember) -> list[requests.Code]:
        answers: list[Sequence[requests.Code]] = []
        leaving = [requests.LeavingMember(one) if isinstance(one, str) else one for one in members]
        self.append(self.coordinator.leave(G, leaving, answers.append))
        (codes,) = answers
        return list(codes)

    def stable(self, *instances: str | None) -> list[str]:
        """Make a Stable group with a member for each of `instances`, an instance id or None. The first member leads."""
        joined = [self.join(version=3, instance_id=one) for one in instances or (None,)]
        for _ in joined:
            self.advance(self.limits.initial_rebalance_delay_ms)
        answers = [one[0] for one in joined]
        self.sync_all(answers)
        return [one.member_id for one in answers]

    def sync_all(self, answers: Sequence[requests.JoinAnswer]) -> None:
        generation = answers[0].generation
        for one in answers:
            mine = {each.member_id: each.member_id.encode() for each in answers}
            self.sync(one.member_id, generation, mine if one.member_id == one.leader else None)

    # Committed positions.

    def commit(
        self,
        offset: int = 42,
        *,
        producer_id: ProducerId = NO_PRODUCER_ID,
        positions: Mapping[TopicPartition, Position] | None = None,
        **fields: object,
    ) -> requests.Code | Mapping[TopicPartition, requests.Code]:
        """Commit a position in t-0, or `positions` if given; return one code for t-0, or the code of each partition."""
        answers: list[requests.Code | Mapping[TopicPartition, requests.Code]] = []
        where = positions if positions is not None else {T0: Position(offset)}
        name = str(fields.pop("group", G))
        request = requests.OffsetCommitRequest(group=name, positions=where, **fields)  # type: ignore[arg-type]
        group = self.coordinator.find(name)
        write = self.offsets.commit(group, request, self.clock(), answers.append, producer_id=producer_id)
        made = not self.refuse and write is not None and group is None
        self.append(write)
        if made:
            self.coordinator.new_group(name)
        (answer,) = answers
        if isinstance(answer, Mapping) and positions is None:
            return answer[T0]
        return answer

    def fetch(self, partition: TopicPartition = T0, *, stable: bool = False) -> StoredOffset | None:
        return self.offsets.fetch(G, partition, require_stable=stable)

    def call(self, request: Callable[[Callable[[object], None]], requests.Write | None]) -> object:
        """Make a request that has one answer, and return the answer."""
        answers: list[object] = []
        self.append(request(answers.append))
        (answer,) = answers
        return answer
