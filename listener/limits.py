"""ListenerLimits of what clients may take: connections, memory, processor time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from topicfs.listener.errors import BadRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """The limits of one listener. Names in brackets are a broker's settings for the same."""

    max_request_bytes: int = 100 << 20
    """Largest request (socket.request.max.bytes)."""
    max_memory_bytes: int = 256 << 20
    """Most bytes of requests and of answers to Fetch that are held at a time (queued.max.request.bytes)."""
    small_bytes: int = 64 << 10
    """Requests up to this size count as one of a connection, and not in `max_memory_bytes`."""
    max_structures: int = 1 << 16
    """Most structures in the arrays of one request: each takes some hundred bytes of memory."""
    max_connections: int = 1000
    """Most connections (max.connections)."""
    max_handled: int = 2
    """Most requests that are worked on at a time (num.io.threads). Others wait, so that a mount in this process has its turn."""
    idle_seconds: float = 600.0
    """Time after which a connection without requests is closed (connections.max.idle.ms)."""
    stall_seconds: float = 30.0
    """Time for which a client may take nothing of an answer, and that the rest of a small request may take."""
    slowest_bytes: int = 1 << 20
    """Bytes a second at which a client sends a large request at least: until then it holds memory."""
    max_wait_seconds: float = 60.0
    """Longest wait of a Fetch for records."""
    max_fetch_bytes: int = 16 << 20
    """Most bytes of records in an answer to Fetch, if their first batch is not larger (fetch.max.bytes)."""


class Memory:
    """The memory for large requests and answers. Safe from any thread."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._free = limits.max_memory_bytes
        self._ended = False
        self._changed = threading.Condition()

    def end(self) -> None:
        """Refuse requests that wait for memory, and all that come later."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @contextmanager
    def lent(self, size: int) -> Iterator[None]:
        """Hold `size` bytes in a block, after a wait if others hold too much.

        BadRequestError: the wait took too long, or the listener ends.
        """
        size = 0 if size <= self._limits.small_bytes else min(size, self._limits.max_memory_bytes)
        if not size:
            yield
            return
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._ended or self._free >= size, self._limits.stall_seconds
            ):
                raise BadRequestError(f"no memory for a request of {size} bytes; others hold it")
            if self._ended:
                raise BadRequestError("the listener ends")
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


class RequestBudget:
    """Turns of requests: only so many are worked on at a time. Safe from any thread."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Work in a block, after a wait for a turn."""
        with self._free:
            yield

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """Wait in a block, inside of `taken`, while another request has the turn."""
        self._free.release()
        try:
            yield
        finally:
            self._free.acquire()
