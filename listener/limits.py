"""Limits on what clients may use: connections, memory, processor time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

from topicfs.listener.errors import BadRequestError
from topicfs.storage.config.broker import EngineConfig

_UNLIMITED = 2**63 - 1
_LONGEST_SECONDS = 1e8
"""Longest time limit: three years. A socket cannot wait for much longer."""


class ListenerLimits(NamedTuple):
    """The limits of one listener. A name in parentheses is the broker's setting for the same limit."""

    max_request_bytes: int = 100 << 20
    """Largest size of a request (socket.request.max.bytes)."""
    max_memory_bytes: int = 256 << 20
    """Largest total size of the large requests and the answers to Fetch that are in memory at a time
    (queued.max.request.bytes).
    """
    small_bytes: int = 64 << 10
    """Requests up to this size do not count in `max_memory_bytes`, because each connection holds only one of them at
    a time. Clients that are not authenticated can send no larger request.
    """
    max_structures: int = 1 << 16
    """Largest number of structures in the arrays of one request; each takes some hundred bytes of memory."""
    max_connections: int = 1000
    """Largest number of connections (max.connections)."""
    max_connections_per_ip: int = 2**31 - 1
    """Largest number of connections from one address (max.connections.per.ip)."""
    max_handled: int = 2
    """Largest number of requests handled at a time (num.io.threads). More would slow down a mount in the same
    process.
    """
    idle_seconds: float = 600.0
    """Time after which a connection that sends no requests is closed (connections.max.idle.ms)."""
    authentication_seconds: float = 30.0
    """Longest time from accepting a connection to the end of its TLS handshake and authentication."""
    failed_authentication_seconds: float = 0.1
    """Time for which the answer to a failed authentication is delayed (connection.failed.authentication.delay.ms)."""
    stall_seconds: float = 30.0
    """Longest time for which a client may stop reading an answer, and longest time that a small request may take to
    arrive.
    """
    slowest_bytes: int = 1 << 20
    """Minimum rate, in bytes per second, at which a client must send a large request, because the request holds
    memory.
    """
    max_wait_seconds: float = 60.0
    """Longest time for which a Fetch waits for records."""
    max_fetch_bytes: int = 16 << 20
    """Largest size of the records in an answer to Fetch, unless the first batch is larger (fetch.max.bytes)."""

    @classmethod
    def of(cls, config: EngineConfig) -> Self:
        """Return the limits that settings define."""
        return cls(
            max_request_bytes=config.max_request_bytes,
            max_memory_bytes=config.max_queued_bytes if config.max_queued_bytes > 0 else _UNLIMITED,
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            idle_seconds=_LONGEST_SECONDS
            if config.max_idle_ms < 0
            else min(config.max_idle_ms / 1000, _LONGEST_SECONDS),
            failed_authentication_seconds=config.failed_authentication_delay_ms / 1000,
        )


class Memory:
    """The memory budget for large requests and answers. Thread-safe."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._free = limits.max_memory_bytes
        self._ended = False
        self._changed = threading.Condition()

    def end(self) -> None:
        """Refuse the requests that wait for memory, and all later requests."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @contextmanager
    def lent(self, size: int) -> Iterator[None]:
        """Context manager: hold `size` bytes of the budget, after waiting until they are free.

        Raises BadRequestError if the bytes are not free in time, ConnectionAbortedError if the listener ends.
        """
        size = 0 if size <= self._limits.small_bytes else min(size, self._limits.max_memory_bytes)
        if not size:
            yield
            return
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._ended or self._free >= size, self._limits.stall_seconds
            ):
                raise BadRequestError(
                    f"no memory for a request of {size} bytes: other requests use the memory"
                )
            if self._ended:
                raise ConnectionAbortedError("the listener is closing")
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


class RequestBudget:
    """Limits how many requests are handled at a time. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Context manager: handle a request, after waiting for a free slot."""
        with self._free:
            yield

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """Context manager inside `taken`: release the slot while the request waits."""
        self._free.release()
        try:
            yield
        finally:
            self._free.acquire()
