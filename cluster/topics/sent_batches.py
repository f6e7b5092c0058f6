"""Batches of one partition that are sent before earlier batches are answered.

    begin ─► batch 1 ─► ┐                 ┌─► answer 1 ─► end
    begin ─► batch 2 ─► ┼─► one broker ─► ┼─► answer 2 ─► end
    begin ─► batch 3 ─► ┘                 └─► answer 3 ─► end

A broker handles the requests of a connection in order. After any error the connection is not used again: the producer
sends all unanswered batches again, with the same sequence numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from topicfs.cluster.brokers.brokers import Leader
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.protocol.connection import Connection, SentRequest
from topicfs.protocol.messages import PRODUCE
from topicfs.storage.errors import ClusterError
from topicfs.storage.model import NO_TIMESTAMP, Appended, Offset, Timestamp, TopicPartition
from topicfs.storage.validation.batches import Incoming
from topicfs.storage.wire import Values

FIRST_VERSION_BY_ID = 13
"""First version of Produce with topic ids, so that no batch is appended to a recreated topic of the same name."""


class Produced(NamedTuple):
    """A leader's answer to one batch."""

    error: int
    """Kafka's error code."""
    base_offset: Offset = Offset(-1)
    append_time: Timestamp = NO_TIMESTAMP
    log_start_offset: Offset = Offset(0)
    leader_epoch: int = -1
    last_stable_offset: Offset | None = None
    """The last stable offset after the append; None if it was not requested or not reported."""
    message: str | None = None


class SentBatch:
    """A batch that may be sent before earlier batches are answered, and its outcome."""

    __slots__ = ("batch", "batches", "durable", "outcome", "sent", "sequence")

    def __init__(self, batches: bytearray, batch: Incoming, *, durable: bool) -> None:
        self.batches, self.batch, self.durable = batches, batch, durable
        self.sequence = 0
        """The sequence number of the batch's first record."""
        self.sent = False
        """True if the batch may be in the log."""
        self.outcome: Produced | Exception | None = None

    @property
    def records(self) -> int:
        return self.batch.last_offset - self.batch.base_offset + 1


class SentAppend:
    __slots__ = ("_begun", "_end", "_then")

    def __init__(self, begun: Sequence[SentBatch], end: Callable[[Sequence[SentBatch]], Appended]) -> None:
        self._begun, self._end = begun, end
        self._then: Callable[[Appended], None] = lambda _: None

    def then(self, call: Callable[[Appended], None]) -> SentAppend:
        """Call `call` once the batches are in the log."""
        self._then = call
        return self

    @property
    def failed(self) -> bool:
        """True if one of the batches is not in the log, or if that is unknown."""
        return any(isinstance(one.outcome, Exception) for one in self._begun)

    def end(self) -> Appended:
        """Wait until the batches are in the log (blocking). Raises the errors of an append."""
        appended = self._end(self._begun)
        self._then(appended)
        return appended


class SentBatches:
    """The unanswered batches of one partition. Used by one thread at a time."""

    def __init__(self, leaders: Leaders, partition: TopicPartition, topic_id: str) -> None:
        self._leaders, self._partition, self._topic_id = leaders, partition, topic_id
        self._batches: deque[tuple[SentBatch, SentRequest]] = deque()
        self._leader = Leader(-1, -1)
        self._connection: Connection | None = None
        self._lent = ExitStack()

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def ready(self) -> bool:
        """True if another batch can be sent now."""
        connection = self._connection
        return connection is not None and connection.ready

    def send(self, one: SentBatch, request: Callable[[bool], Values]) -> bool:
        """Send a batch (blocking); return whether it was sent. `request(by_id)` makes the request."""
        try:
            connection = self._connection or self._connect()
            if (
                not connection.ready
            ):  # Do not use the connection: its session is over, or the broker throttles the client.
                return False
            by_id = connection.version(PRODUCE) >= FIRST_VERSION_BY_ID
            one.sent = True
            sent = connection.begin(PRODUCE, request(by_id), seconds=ATTEMPT_SECONDS)
        except ClusterError:
            return False
        self._batches.append((one, sent))
        return True

    def answer(self) -> tuple[SentBatch, Values, Leader]:
        """Return the oldest batch, its answer, and the leader (blocking). Raises ClusterError."""
        one, sent = self._batches[0]
        assert self._connection is not None
        with self._leaders.noted(self._partition):
            return one, self._connection.end(sent), self._leader

    def ended(self) -> None:
        """Remove the oldest batch. If no batch is left, put the connection back into its pool."""
        self._batches.popleft()
        if not self._batches:
            self.close()

    def given_up(self) -> list[SentBatch]:
        """Close the connection, and return the unanswered batches."""
        if self._connection is not None and self._batches:
            self._connection.close()
        self.close()
        batches = [one for one, _ in self._batches]
        self._batches.clear()
        return batches

    def close(self) -> None:
        """Put the connection back into its pool."""
        self._connection = None
        self._lent.close()

    def _connect(self) -> Connection:
        leader = self._leaders.known(self._partition, self._topic_id)
        if leader is None:
            raise UnreachableError(f"{self._partition}: no leader is known")
        self._leader = leader
        self._connection = self._lent.enter_context(self._leaders.brokers.connection(leader.node))
        return self._connection
