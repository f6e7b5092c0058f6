"""Engines whose answers come over a network, such as a Kafka cluster.

A call that has to wait for an answer says so first (`RemoteEngine.call_before_waiting`), and changes nothing before. The
mount has it raise ThreadNeededError in the event loop's thread, and then makes the whole call in a thread that may wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topicfs.storage.model import Appended


class ThreadNeededError(Exception):
    """The call must be repeated in another thread: this one, the event loop's, must not do that much."""


class RemoteEngine(Protocol):
    """An engine that is `remote`."""

    def call_before_waiting(self, hook: Callable[[], None]) -> None:
        """Call `hook` in each thread that is about to wait for an answer; what it raises ends the call."""


class PendingAppend(Protocol):
    """An append that was begun, and has not ended."""

    @property
    def failed(self) -> bool:
        """True if it is known to have failed."""

    def end(self) -> Appended:
        """Wait for the end of the append (blocking). Raises what `Partition.append` does."""


class BeginsAppends(Protocol):
    """A partition of which several appends may be under way."""

    def begin_append(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> PendingAppend:
        """Begin an append behind others, unless `unless()` by then (blocking; raises as `Partition.append`)."""
