"""Requests to the brokers that lead partitions: made again where a leader has moved, each up to an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol, TypeVar

from topicfs.cluster.brokers.brokers import Backoff, Brokers, Leader, Metadata
from topicfs.cluster.errors import (
    DELETED,
    LEADER_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    RetryCondition,
    ThrottledError,
    UnreachableError,
    error_of,
    kind_of,
)
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
"""Time after which the search for a partition's leader ends."""
ATTEMPT_SECONDS = 10.0
"""Time that one broker may take for one answer: a leader that hangs has a successor by then."""
ANSWERING_SECONDS = 5.0
"""Time that is added while brokers answer but know no leader yet."""
METADATA_SECONDS = 5.0
"""Time that one broker may take for the metadata, which any broker has."""
REPORT_AFTER_SECONDS = 1.0
"""Time after which it is told that a leader has not answered yet."""
MAX_REPORTED_PARTITIONS = 10
"""The most partitions of which that is told one by one."""
FAILURES_GONE = 4
"""Number of answers that a topic does not exist until that is believed: a broker may not know a new topic yet."""


class Coded(Protocol):
    """Part of an answer that is about one partition."""

    @property
    def error(self) -> int:
        """Kafka's code."""


Answer = TypeVar("Answer", bound=Coded)


class PendingRequest(NamedTuple):
    """A request to the leader of a partition, without an answer yet."""

    partition: TopicPartition
    since: float
    """By the clock of `time.monotonic`."""
    error: str = ""
    """The outcome of the last attempt."""


class Leaders:
    """The leaders of partitions, as far as known, and requests to them. Safe from any thread."""

    def __init__(self, brokers: Brokers, *, patience_seconds: float = LEADER_TIMEOUT_SECONDS) -> None:
        """Ask the cluster for its metadata (blocking). Raises what `Brokers.metadata` does."""
        self.brokers = brokers
        self.patience_seconds = patience_seconds
        self.metadata = brokers.metadata()
        """The metadata last seen, an immutable value that newer metadata replace."""
        self.before_waiting: Callable[[], None] = lambda: None
        """Called in each thread that is about to wait for an answer (`storage.remote.RemoteEngine`)."""
        self._closed = threading.Event()
        self._looking = threading.Lock()
        self._asking: dict[object, PendingRequest] = {}

    def look(self, seen: Metadata | None = None) -> Metadata:
        """Return newer metadata than `seen`, or than there is now (blocking). Raises what `Brokers.metadata` does."""
        with self._looking:
            if seen is None or seen is self.metadata:
                self.metadata = self.brokers.metadata(seconds=METADATA_SECONDS)
            return self.metadata

    def look_again(self, seen: Metadata) -> None:
        """Look, unless others have since `seen`. It is no error if no broker answers (blocking)."""
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
        """Return the answer of a partition's leader, which may be an error that no other attempt would mend (blocking).

        A leader that wants no request because a quota is used up is waited for, however long that takes. Leaders of
        epochs before `since` are not asked: such metadata come from a broker that lags behind.
        Raises NoAnswerError when there was none in time, PartitionGoneError if the topic was deleted,
        NotAuthorizedError if the user may no longer describe it, and what `attempt` raises except UnreachableError.
        """
        with self.noted(partition) as question:
            return self._ask(question, partition, topic_id, attempt, since)

    @contextmanager
    def noted(self, partition: TopicPartition) -> Iterator[object]:
        """Count a request to a partition's leader among those that wait, for the block."""
        question = object()
        self._asking[question] = PendingRequest(partition, time.monotonic())
        try:
            yield question
        finally:
            del self._asking[question]

    def known(self, partition: TopicPartition, topic_id: str) -> Leader | None:
        """Return the leader of a partition as far as known, without asking for it."""
        metadata = self.metadata
        topic = metadata.topics.get(partition.topic)
        leader = metadata.leader(partition)
        found = topic is not None and topic.topic_id == topic_id and leader.node in metadata.brokers
        return leader if found and not self.closed else None

    def waiting(self) -> list[str]:
        """Return a line for each partition whose leader has not answered for a while: since when, and why."""
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
        deadline, backoff = time.monotonic() + self.patience_seconds, Backoff()
        while True:
            seen = self.metadata
            try:
                code = self._attempt(seen, partition, topic_id, attempt, since)
                if not isinstance(code, int):
                    return code
                error: StorageError = error_of(code, str(partition))
                if isinstance(error, UnknownTopicError) and backoff.failures + 1 >= FAILURES_GONE:
                    self._check_exists(partition, topic_id)
            except UnreachableError as unreachable:
                error = unreachable
            if isinstance(error, ThrottledError):
                deadline = time.monotonic() + self.patience_seconds
            self._asking[question] = self._asking[question]._replace(error=str(error))
            pause = backoff.next()
            # A broker that answers again is given the time to find its leaders.
            answers = not isinstance(error, UnreachableError)
            if time.monotonic() + pause > deadline + answers * ANSWERING_SECONDS:
                raise NoAnswerError(f"{partition}: no answer within {self.patience_seconds:g} s: {error}")
            self.pause(pause, str(partition))
            self.look_again(seen)

    def _check_exists(self, partition: TopicPartition, topic_id: str) -> None:
        """Raise the reason why metadata omit a topic, unless it exists after all (blocking). Raises what `ask_any` does, too."""
        codes = self.brokers.answers_by_id({partition.topic: topic_id}, seconds=METADATA_SECONDS)
        code = codes.get(partition.topic)
        if code == TOPIC_AUTHORIZATION_FAILED:
            raise error_of(code, str(partition))
        if code in DELETED:
            raise PartitionGoneError(f"{partition}: its topic was deleted")

    def _attempt(
        self,
        metadata: Metadata,
        partition: TopicPartition,
        topic_id: str,
        attempt: Callable[[Leader], Answer],
        since: int,
    ) -> Answer | int:
        """Return the leader's answer, or the error code for which another attempt is due."""
        self.pause(0, str(partition))
        topic = metadata.topics.get(partition.topic)
        if topic is None or topic.topic_id != topic_id:
            return UNKNOWN_TOPIC_OR_PARTITION
        leader = metadata.leader(partition)
        if leader.node not in metadata.brokers or leader.epoch < since:
            return LEADER_NOT_AVAILABLE
        answer = attempt(leader)
        return answer if kind_of(answer.error).retry is RetryCondition.NO else answer.error

    def pause(self, seconds: float, what: str) -> None:
        """Wait. Raises PartitionOfflineError once `close` is called."""
        if self._closed.wait(seconds):
            raise PartitionOfflineError(f"{what}: the engine was closed")

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """End every request that waits."""
        self._closed.set()
        self.brokers.break_off()
