"""Counts of clients' requests.

For each kind of request: requests, errors and durations. For each client: requests, errors, bytes in and bytes out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.counts.engine_counts import OTHERS, Durations
from topicfs.storage.messages import printable
from topicfs.storage.wire import Values

MAX_CLIENTS = 100
"""Number of clients that are counted separately, in the order of arrival. All others share `OTHERS`."""
MAX_NAME_LENGTH = 64
"""Number of characters of a client id that are shown."""


class ClientName(NamedTuple):
    """The names that a client gives for itself."""

    client: str
    """The client id, printable."""
    software: str
    """The name of the client's library, such as `librdkafka`; empty if the client has not sent it."""


UNAUTHENTICATED = ClientName("@unauthenticated", "")
"""The name for all clients that are not authenticated yet, so that they do not use up the MAX_CLIENTS names."""


class RequestNote(NamedTuple):
    """One answered request."""

    kind: str
    nanoseconds: int
    received_bytes: int
    sent_bytes: int
    error: int
    """The first error code in the answer; 0 if it has none."""


@dataclass(slots=True)
class ClientCounts:
    """The counts of one client, over all of its connections."""

    requests: int = 0
    errors: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    connections: int = 0
    """Number of open connections."""


class ListenerCounts:
    """The counts of one listener. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[ClientName, ClientCounts] = {}
        self._durations: dict[str, Durations] = {}
        self._errors: dict[tuple[str, str], int] = {}

    def note(self, name: ClientName, one: RequestNote) -> None:
        """Count a request."""
        with self._lock:
            counts = self._client(name)
            counts.requests += 1
            counts.received_bytes += one.received_bytes
            counts.sent_bytes += one.sent_bytes
            self._durations.setdefault(one.kind, Durations()).note(one.nanoseconds)
            if one.error:
                counts.errors += 1
                key = (one.kind, _error_name(one.error))
                self._errors[key] = self._errors.get(key, 0) + 1

    def move(self, before: ClientName | None, after: ClientName | None) -> None:
        """Count an open connection under `after` instead of `before`.

        `before` is None for a new connection, and `after` is None for a closed connection.
        """
        with self._lock:
            if before is not None:
                self._client(before).connections -= 1
            if after is not None:
                self._client(after).connections += 1

    def clients(self) -> dict[ClientName, ClientCounts]:
        with self._lock:
            return dict(self._clients)

    def durations(self) -> dict[str, Durations]:
        """Return the durations by the names of the requests."""
        with self._lock:
            return dict(self._durations)

    def errors(self) -> dict[tuple[str, str], int]:
        """Return the counts of answers with an error, by the names of the request and the error."""
        with self._lock:
            return dict(self._errors)

    def _client(self, name: ClientName) -> ClientCounts:
        found = self._clients.get(name)
        if found is None:
            if len(self._clients) >= MAX_CLIENTS:
                name = ClientName(OTHERS, OTHERS)
            found = self._clients.setdefault(name, ClientCounts())
        return found


def client_name(client_id: str, software: str) -> ClientName:
    """Return a client's name for display: printable, and cut to MAX_NAME_LENGTH characters."""
    return ClientName(printable(client_id[:MAX_NAME_LENGTH]), printable(software[:MAX_NAME_LENGTH]))


def first_error(answer: Values) -> int:
    """Return the first error code of an answer or of one of its parts; 0 if there is none."""
    return next(_errors(answer), 0)


def _errors(values: dict[str, Any]) -> Iterator[int]:
    for name, value in values.items():
        if name == "errorCode":
            if value:
                yield int(value)
        elif type(value) is list and value and type(value[0]) is dict:
            for one in value:
                yield from _errors(one)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
