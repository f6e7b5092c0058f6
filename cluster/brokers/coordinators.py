"""The brokers that coordinate groups. A group's coordinator is looked up once, and again after it has moved."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from topicfs.cluster.brokers.brokers import Backoff, Brokers
from topicfs.cluster.errors import NONE, RetryCondition, UnreachableError, error_of, kind_of
from topicfs.cluster.protocol.connection import ANSWER_TIMEOUT_SECONDS
from topicfs.protocol.group_messages import FIND_COORDINATOR
from topicfs.protocol.notation import Api
from topicfs.storage.errors import StorageError
from topicfs.storage.model import TopicPartition
from topicfs.storage.wire import Values

GROUP, SHARE = 0, 2
"""Types of coordinators: for a group, and for the state of a share group in one partition."""
COORDINATOR_TIMEOUT_SECONDS = 30.0
"""Time limit for finding a coordinator that answers."""

Codes: TypeAlias = Callable[[Values], Iterable[int]]
"""Returns all error codes in an answer."""


class Coordinators:
    """Finds the coordinators of groups, and sends requests to them. Safe from any thread."""

    def __init__(self, brokers: Brokers, *, timeout_seconds: float = COORDINATOR_TIMEOUT_SECONDS) -> None:
        self.brokers = brokers
        self._timeout_seconds = timeout_seconds
        self._found: dict[tuple[int, str], int] = {}
        self._closed = threading.Event()

    def ask(  # noqa: PLR0913 - whom, what, and how the answer is read; keyword-only from the fourth on
        self,
        kind: int,
        key: str,
        api: Api,
        request: Values,
        *,
        codes: Codes,
        what: str,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> Values:
        """Send a request to the coordinator of `key` (blocking).

        Retries while the coordinator is being created, moved or loaded. Raises the error for the first permanent
        error code in the answer, UnreachableError, and the errors of `Connection.call`.
        """
        deadline, backoff = time.monotonic() + self._timeout_seconds, Backoff()
        while True:
            try:
                node = self.node(kind, key, what=what)
                answer = self.brokers.ask(node, api, request, seconds=seconds, coordinator=True)
                code = next((one for one in codes(answer) if one != NONE), NONE)
                if code == NONE:
                    return answer
                error: StorageError = error_of(code, what)
                passes = kind_of(code).retry is not RetryCondition.NO
            except UnreachableError as unreachable:
                error, passes = unreachable, True
            pause = backoff.next()
            if not passes or time.monotonic() + pause > deadline:
                raise UnreachableError(str(error)) if passes else error from None
            self.forget(kind, key)
            if self._closed.wait(pause):
                raise error from None

    def node(self, kind: int, key: str, *, what: str) -> int:
        """Return the broker that coordinates `key` (blocking).

        Raises UnreachableError, also if no broker coordinates `key` yet.
        """
        found = self._found.get((kind, key))
        if found is not None:
            return found
        answer = self.brokers.ask_any(
            FIND_COORDINATOR, {"key": key, "keyType": kind, "coordinatorKeys": [key]}
        )
        (one,) = answer.get("coordinators") or [answer]
        if one["errorCode"] != NONE:
            error = error_of(one["errorCode"], what, one["errorMessage"])
            raise (
                error
                if kind_of(one["errorCode"]).retry is RetryCondition.NO
                else UnreachableError(str(error))
            )
        node: int = one["nodeId"]
        self.brokers.metadata()  # Learn the broker's present address.
        self._found[kind, key] = node
        return node

    def forget(self, kind: int, key: str) -> None:
        """Forget the coordinator of `key`, so that the next request looks it up."""
        self._found.pop((kind, key), None)

    def close(self) -> None:
        """Stop every request that waits for another attempt."""
        self._closed.set()


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic, both ascending, as requests list them."""
    found: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        found[topic].append(number)
    return dict(found)
