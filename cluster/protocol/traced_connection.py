"""Connections that record each request and answer, for `topicfs explain`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import CLIENT_ID, Connection
from topicfs.cluster.protocol.notation import Api
from topicfs.inspection.explain import RequestAnswered
from topicfs.storage.model import Buffer


class _Sent(NamedTuple):
    """A request under way."""

    name: str
    version: int
    size: int
    began: float


class Trace:
    """The requests of the thread that made this, in the order of their answers."""

    def __init__(self) -> None:
        self._answered: list[RequestAnswered] = []
        self._thread = threading.get_ident()

    def take(self) -> tuple[RequestAnswered, ...]:
        """Return what was asked since the last call."""
        taken, self._answered = self._answered, []
        return tuple(taken)

    def note(self, answered: RequestAnswered) -> None:
        """Take note of a request, unless another thread made it."""
        if threading.get_ident() == self._thread:
            self._answered.append(answered)


class TracedConnection(Connection):
    """See `cluster.protocol.connection.Connection`."""

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
