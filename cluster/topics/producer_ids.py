"""The producer id of an engine. A broker recognizes repeated batches by this id and their sequence numbers."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from topicfs.cluster.brokers.brokers import Backoff
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.errors import RetryCondition, ThrottledError, error_of, kind_of
from topicfs.protocol.messages import INIT_PRODUCER_ID
from topicfs.storage.errors import ClusterError, NotAuthorizedError, StorageError
from topicfs.storage.model import NO_PRODUCER_ID


class ProducerIdentity(NamedTuple):
    """A producer's id and epoch, assigned by the cluster."""

    producer_id: int
    epoch: int


class ProducerIds:
    """An engine's producer id, requested on first use. Safe from any thread."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._lock = threading.Lock()
        self._current: ProducerIdentity | None = None

    def current(self) -> ProducerIdentity:
        """Return the id (blocking). Raises NotAuthorizedError, PartitionOfflineError, ClusterError."""
        with self._lock:
            if self._current is None:
                self._current = self._ask()
            return self._current

    def give_up(self, identity: ProducerIdentity) -> None:
        """Stop using `identity`, because it is unknown whether its last batch was appended."""
        with self._lock:
            if self._current == identity:
                self._current = None

    def _ask(self) -> ProducerIdentity:
        """Ask any broker for an id; retry while no ids are available yet."""
        leaders = self._leaders
        deadline, backoff = time.monotonic() + leaders.timeout_seconds, Backoff()
        asked = {
            "transactionalId": None,
            "transactionTimeoutMs": 0,
            "producerId": NO_PRODUCER_ID,
            "producerEpoch": -1,
        }
        while True:
            leaders.pause(0, "producer")
            try:
                answer = leaders.brokers.ask_any(INIT_PRODUCER_ID, asked, seconds=ATTEMPT_SECONDS)
                if not answer["errorCode"] and answer["producerId"] >= 0:
                    return ProducerIdentity(answer["producerId"], answer["producerEpoch"])
                error = _refusal(answer["errorCode"])
                retry = not answer["errorCode"] or kind_of(answer["errorCode"]).retry is not RetryCondition.NO
            except ClusterError as unreachable:
                error, retry = unreachable, True
            if isinstance(error, ThrottledError):
                deadline = time.monotonic() + leaders.timeout_seconds
            pause = backoff.next()
            if not retry or time.monotonic() + pause > deadline:
                raise error
            leaders.pause(pause, "producer")


def _refusal(code: int) -> StorageError:
    """Return the exception for a producer id that was refused with `code`."""
    error = error_of(code, "a producer's id")
    if isinstance(error, NotAuthorizedError):
        return NotAuthorizedError(
            "the cluster refuses a producer id; ask for an ACL with IdempotentWrite on the cluster, or Write on the topic"
        )
    return error
