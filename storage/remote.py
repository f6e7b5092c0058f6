"""Engines whose answers come over a network, such as a Kafka cluster.

Before a call waits for an answer, and before it changes anything, it calls a hook
(`RemoteEngine.call_before_waiting`). The mount's hook raises ThreadNeededError in the event loop's thread; the mount
then makes the whole call in a thread that may wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topicfs.storage.model import Appended


class ThreadNeededError(Exception):
    """The call must be repeated in another thread: this one, the event loop's, must not do so much work."""


class RemoteEngine(Protocol):
    """An engine that is `remote`."""

    def call_before_waiting(self, hook: Callable[[], None]) -> None:
        """Call `hook` in each thread that is about to wait for an answer; an exception of `hook` ends the call."""


class PendingAppend(Protocol):
    """An append that was begun and may not have ended."""

    @property
    def failed(self) -> bool:
        """True if it is known to have failed."""

    def end(self) -> Appended:
        """Wait for the end of the append. Raises what `Partition.append` does. Blocks."""


class BeginsAppends(Protocol):
    """A partition to which several appends may be under way."""

    def begin_append(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> PendingAppend:
        """Begin an append after others, unless `unless()` is true by then (blocking; raises as `Partition.append`)."""
