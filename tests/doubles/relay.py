"""A relay between a client and brokers that breaks a connection or changes an answer when a test wants it."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeAlias

from tests.doubles.servers import Start
from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.protocol.security import PLAINTEXT, Security
from topicfs.protocol.messages import API_VERSIONS, APIS, FETCH
from topicfs.protocol.notation import Api


class Lost(Enum):
    """The moment at which the relay breaks the connection: just before the event that the value describes."""

    REQUEST = "the broker gets it"
    ANSWER = "the client gets the broker's answer"


Change: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A function that takes an answer's fields and returns the fields to send instead."""


class Relay:
    """A relay with one server per broker. Clients connect with `connect`, and send one request at a time."""

    def __init__(self, start: Start, note: Callable[[str], None] | None = None) -> None:
        """`start` starts a server (`tests.doubles.servers`); `note` is called with each request's name."""
        self.requests: Counter[str] = Counter()
        """The number of requests that reached the brokers, by the request's name."""
        self._start, self._note = start, note
        self._lock = threading.Lock()
        self._servers: dict[Server, Server] = {}
        self._next: dict[int, deque[Lost | Change]] = defaultdict(deque)
        self._always: dict[int, Lost | Change] = {}

    def do(self, api: Api, *actions: Lost | Change) -> None:
        """Apply `actions` to the next requests of `api`: the first action to the first request, and so on."""
        self._next[api.key].extend(actions)

    def always(self, api: Api, action: Lost | Change | None) -> None:
        """Apply `action` to every request of `api` from now on; None ends this."""
        with self._lock:
            self._always.pop(api.key, None)
            if action is not None:
                self._always[api.key] = action

    def done(self, api: Api) -> bool:
        """Return whether all actions given to `do` for `api` have been applied."""
        return not self._next[api.key]

    def connect(self, server: Server, security: Security = PLAINTEXT, **how: Any) -> Connection:
        """Connect to a broker through the relay, with the parameters of `Connection`."""
        with self._lock:
            if server not in self._servers:
                self._servers[server] = self._start(lambda client: self._serve(client, server))
            instead = self._servers[server]
        connection = Connection(instead, security, **how)
        connection.server = server
        return connection

    def _serve(self, client: socket.socket, server: Server) -> None:
        with socket.create_connection(server) as broker:
            while True:
                request = _frame(client)
                key, version = struct.unpack_from(">hh", request)
                action = self._action(key)
                if action is Lost.REQUEST:
                    return
                broker.sendall(struct.pack(">i", len(request)) + request)
                self.requests[_NAMES.get(key, str(key))] += 1
                if self._note is not None:
                    self._note(_name(request, key, version))
                answer = _frame(broker)
                if action is Lost.ANSWER:
                    return
                if action is not None:
                    answer = _changed(answer, _APIS[key], version, action)
                client.sendall(struct.pack(">i", len(answer)) + answer)

    def _action(self, key: int) -> Lost | Change | None:
        with self._lock:
            waiting = self._next[key]
            return waiting.popleft() if waiting else self._always.get(key)


_APIS = {one.key: one for one in APIS}
_NAMES = {key: one.name for key, one in _APIS.items()}


def _name(request: bytes, key: int, version: int) -> str:
    """Return a request's name; a fetch's name also says whether the fetch belongs to a session."""
    if key != FETCH.key:
        return _NAMES.get(key, str(key))
    (client_size,) = struct.unpack_from(">h", request, 8)
    asked = FETCH.request.read(memoryview(request)[8 + 2 + max(client_size, 0) + 1 :], version)
    return "Fetch" if asked["sessionEpoch"] < 0 else "Fetch in a session"


def _changed(answer: bytes, api: Api, version: int, change: Change) -> bytes:
    head = 5 if api.is_flexible(version) and api is not API_VERSIONS else 4
    values = api.response.read(memoryview(answer)[head:], version)
    return answer[:head] + api.response.write(change(dict(values)), version)


def _frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise OSError("the connection was closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
