"""Requests to the leaders of partitions. If a leader has moved, a request is repeated until a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol, TypeVar

from topicfs.cluster import errors
from topicfs.cluster.brokers.brokers import Backoff, Brokers, Leader, Metadata
from topicfs.storage.errors import (
    ClusterError,
    NoAnswerError,
    PartitionGoneError,
    PartitionOfflineError,
    StorageError,
    UnknownTopicError,
)
from topicfs.storage.model import TopicPartition

LEADER_TIMEOUT_SECONDS = 30.0
"""Time limit for finding a partition's leader and getting an answer from it."""
ATTEMPT_SECONDS = 10.0
"""Time limit for one broker's answer. By then the cluster has replaced a leader that hangs."""
ANSWERING_SECONDS = 5.0
"""Time added to the limit if brokers answer again, so that the cluster can elect new leaders."""
METADATA_TIMEOUT_SECONDS = 5.0
"""Time limit for one broker's metadata. It is short because any other broker can be asked instead."""
REPORT_AFTER_SECONDS = 1.0
"""Time after which a request that has no answer is reported."""
MAX_REPORTED_PARTITIONS = 10
"""Maximum number of waiting partitions that are reported one by one."""
FAILURES_GONE = 4
"""Number of answers without a topic after which this client asks whether the topic exists. One answer is not enough,
because a broker may not know a new topic yet.
"""


class Coded(Protocol):
    """The part of an answer that concerns one partition."""

    @property
    def error(self) -> int:
        """Kafka's error code."""


Answer = TypeVar("Answer", bound=Coded)


class PendingRequest(NamedTuple):
    """A request to a partition's leader that has not been answered yet."""

    partition: TopicPartition
    since: float
    """When the request began, by `time.monotonic`."""
    error: str = ""
    """The error of the last attempt."""


class Leaders:
    """The known leaders of partitions, and requests to them. Safe from any thread."""

    def __init__(self, brokers: Brokers, *, timeout_seconds: float = LEADER_TIMEOUT_SECONDS) -> None:
        """Read the cluster's metadata (blocking). Raises the errors of `Brokers.metadata`."""
        self.brokers = brokers
        self.timeout_seconds = timeout_seconds
        self.metadata = brokers.metadata()
        """The latest metadata. The value is immutable and is replaced as a whole."""
        self.before_waiting: Callable[[], None] = lambda: None
        """Called by each thread before it waits for an answer (`storage.remote.RemoteEngine`)."""
        self._closed = threading.Event()
        self._looking = threading.Lock()
        self._asking: dict[object, PendingRequest] = {}

    def look(self, seen: Metadata | None = None) -> Metadata:
        """Return newer metadata than `seen`, or than the present metadata if `seen` is None (blocking).

        Raises the errors of `Brokers.metadata`.
        """
        with self._looking:
            if seen is None or seen is self.metadata:
                self.metadata = self.brokers.metadata(seconds=METADATA_TIMEOUT_SECONDS)
            return self.metadata

    def look_again(self, seen: Metadata) -> None:
        """Refresh the metadata, unless it is newer than `seen` already; unreachable brokers are ignored (blocking)."""
        with suppress(ClusterError):
            self.look(seen)

    def ask(
        self,
        partition: TopicPartition,
        topic_id: str,
        attempt: Callable[[Leader], Answer],
        *,
        since: int = -1,
    ) -> Answer:
        """Return the answer of a partition's leader, which may be a permanent error (blocking).

        If the leader throttles this client, waits without limit. Leaders with epochs below `since` are ignored,
        because such metadata comes from a broker that lags behind. Raises NoAnswerError if there is no answer in
        time, PartitionGoneError if the topic was deleted, NotAuthorizedError if the user may no longer describe it,
        and all errors of `attempt` except UnreachableError.
        """
        with self.noted(partition) as question:
            return self._ask(question, partition, topic_id, attempt, since)

    @contextmanager
    def noted(self, partition: TopicPartition) -> Iterator[object]:
        """Context manager: `waiting` lists a request to a partition's leader until the block ends."""
        question = object()
        self._asking[question] = PendingRequest(partition, time.monotonic())
        try:
            yield question
        finally:
            del self._asking[question]

    def known(self, partition: TopicPartition, topic_id: str) -> Leader | None:
        """Return the known leader of a partition. Asks no broker."""
        metadata = self.metadata
        topic = metadata.topics.get(partition.topic)
        leader = metadata.leader(partition)
        found = topic is not None and topic.topic_id == topic_id and leader.node in metadata.brokers
        return leader if found and not self.closed else None

    def waiting(self) -> list[str]:
        """Return a line for each partition whose leader has not answered for a while: the duration, and the error."""
        now, metadata = time.monotonic(), self.metadata
        oldest: dict[TopicPartition, PendingRequest] = {}
        for one in sorted(self._asking.values(), key=lambda one: one.since):
            if now - one.since >= REPORT_AFTER_SECONDS:
                oldest.setdefault(one.partition, one)
        lines = []
        for one in list(oldest.values())[:MAX_REPORTED_PARTITIONS]:
            node = metadata.leader(one.partition).node
            server = metadata.brokers.get(node)
            leader = f"broker {node}, {server}, leads it" if server else "no broker leads it"
            said = f"; last attempt: {one.error}" if one.error else ""
            lines.append(f"{one.partition}: no answer for {now - one.since:.0f} s ({leader}){said}")
        if len(oldest) > MAX_REPORTED_PARTITIONS:
            lines.append(f"and {len(oldest) - MAX_REPORTED_PARTITIONS} more partitions without an answer")
        return lines

    def _ask(
        self,
        question: object,
        partition: TopicPartition,
        topic_id: str,
        attempt: Callable[[Leader], Answer],
        since: int,
    ) -> Answer:
        deadline, backoff = time.monotonic() + self.timeout_seconds, Backoff()
        while True:
            seen = self.metadata
            try:
                code = self._attempt(seen, partition, topic_id, attempt, since)
                if not isinstance(code, int):
                    return code
                error: StorageError = errors.error_of(code, str(partition))
                if isinstance(error, UnknownTopicError) and backoff.failures + 1 >= FAILURES_GONE:
                    self._check_exists(partition, topic_id)
            except errors.UnreachableError as unreachable:
                error = unreachable
            if isinstance(error, errors.ThrottledError):
                deadline = time.monotonic() + self.timeout_seconds
            self._asking[question] = self._asking[question]._replace(error=str(error))
            pause = backoff.next()
            # If brokers answer again, give them time to elect leaders.
            answers = not isinstance(error, errors.UnreachableError)
            if time.monotonic() + pause > deadline + answers * ANSWERING_SECONDS:
                raise NoAnswerError(f"{partition}: no answer within {self.timeout_seconds:g} s: {error}")
            self.pause(pause, str(partition))
            self.look_again(seen)

    def _check_exists(self, partition: TopicPartition, topic_id: str) -> None:
        """Ask brokers why metadata omits a topic, and raise the reason; return if the topic exists (blocking).

        Also raises the errors of `Brokers.ask_any`.
        """
        codes = self.brokers.answers_by_id({partition.topic: topic_id}, seconds=METADATA_TIMEOUT_SECONDS)
        code = codes.get(partition.topic)
        if code == errors.TOPIC_AUTHORIZATION_FAILED:
            raise errors.error_of(code, str(partition))
        if code in errors.DELETED:
            raise PartitionGoneError(f"{partition}: its topic was deleted")

    def _attempt(
        self,
        metadata: Metadata,
        partition: TopicPartition,
        topic_id: str,
        attempt: Callable[[Leader], Answer],
        since: int,
    ) -> Answer | int:
        """Return the leader's answer, or an error code after which a retry may help."""
        self.pause(0, str(partition))
        topic = metadata.topics.get(partition.topic)
        if topic is None or topic.topic_id != topic_id:
            return errors.UNKNOWN_TOPIC_OR_PARTITION
        leader = metadata.leader(partition)
        if leader.node not in metadata.brokers or leader.epoch < since:
            return errors.LEADER_NOT_AVAILABLE
        answer = attempt(leader)
        return answer if errors.kind_of(answer.error).retry is errors.RetryCondition.NO else answer.error

    def pause(self, seconds: float, what: str) -> None:
        """Wait for `seconds`. Raises PartitionOfflineError once `close` is called."""
        if self._closed.wait(seconds):
            raise PartitionOfflineError(f"{what}: the engine was closed")

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Stop every waiting request."""
        self._closed.set()
        self.brokers.break_off()
