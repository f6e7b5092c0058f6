"""The steps of a lookup in a cluster: the leader, the requests to it, and the record in its answer."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import CLIENT_ID, Connection
from topicfs.cluster.topics.partition import ClusterPartition
from topicfs.inspection.explain import (
    ExplainedRecord,
    LeaderKnown,
    Lookup,
    LookupStep,
    RequestAnswered,
    record_at,
)
from topicfs.protocol.notation import Api
from topicfs.storage.model import Buffer, Isolation, Offset, Timestamp
from topicfs.storage.segment.trace import BatchFound, RecordFound


class _Sent(NamedTuple):
    """A request that has not been answered yet."""

    name: str
    version: int
    size: int
    began: float


class Trace:
    def __init__(self) -> None:
        self._answered: list[RequestAnswered] = []
        self._thread = threading.get_ident()

    def take(self) -> tuple[RequestAnswered, ...]:
        """Return the requests since the last call of this method, and forget them."""
        taken, self._answered = self._answered, []
        return tuple(taken)

    def note(self, answered: RequestAnswered) -> None:
        """Record a request of this object's thread; ignore requests of other threads."""
        if threading.get_ident() == self._thread:
            self._answered.append(answered)


class TracedConnection(Connection):
    """A connection that records its requests and answers."""

    def __init__(self, server: Server, *arguments: Any, trace: Trace, **options: Any) -> None:
        self._trace = trace
        self._under_way: deque[_Sent] = deque()
        super().__init__(server, *arguments, **options)

    def _send(self, api: Api, version: int, body: Sequence[Buffer], seconds: float) -> int:
        size = 4 + 10 + len(CLIENT_ID) + api.is_flexible(version) + sum(map(len, body))
        self._under_way.append(_Sent(api.name, version, size, time.perf_counter()))
        return super()._send(api, version, body, seconds)

    def _receive(self, max_bytes: int, api: Api) -> memoryview:
        frame = super()._receive(max_bytes, api)
        sent = self._under_way.popleft()
        self._trace.note(
            RequestAnswered(
                sent.name,
                sent.version,
                str(self.server),
                sent.size,
                4 + len(frame),
                round((time.perf_counter() - sent.began) * 1e3, 3),
            )
        )
        return frame


class ClusterExplainer:
    """Looks up records as readers do. Each lookup shows the traced requests made since the previous lookup."""

    def __init__(self, engine: ClusterEngine, trace: Trace) -> None:
        self._engine, self._trace = engine, trace

    def offset(self, partition: ClusterPartition, offset: Offset) -> Lookup:
        """Look up an offset (blocking). Raises the errors of `Partition.read`."""
        found = record_at(partition, offset)
        return self._lookup(partition, found)

    def timestamp(self, partition: ClusterPartition, timestamp: Timestamp, isolation: Isolation) -> Lookup:
        """Look up the first record at or after a timestamp (blocking). Raises like `Partition.offset_for_timestamp`."""
        answer = partition.offset_for_timestamp(timestamp, isolation=isolation)
        found = None if answer is None else record_at(partition, answer.offset)
        return self._lookup(partition, found)

    def _lookup(self, partition: ClusterPartition, found: ExplainedRecord | None) -> Lookup:
        metadata = self._engine.leaders.metadata
        leader = metadata.leader(partition.name)
        server = metadata.brokers.get(leader.node)
        steps: list[LookupStep] = [
            LeaderKnown(leader.node, str(server or "at an unknown address"), leader.epoch)
        ]
        steps += self._trace.take()
        if found is not None:
            batch, record = found.batch, found.record
            steps.append(BatchFound(0, batch.size_bytes, batch.base_offset, batch.last_offset))
            steps.append(RecordFound(record.offset, record.timestamp))
        return Lookup(tuple(steps), found)
