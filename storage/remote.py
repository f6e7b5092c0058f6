"""Engines whose answers come over a network, such as a Kafka cluster.

Before a call waits for an answer, and before it changes anything, it calls a hook (`RemoteEngine.call_before_waiting`).
The mount's hook raises ThreadNeededError in the event loop's thread. The mount then makes the call in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topicfs.storage.model import Appended


class ThreadNeededError(Exception):
    """The call must be repeated in another thread, because the event loop's thread must not do so much work."""


class RemoteEngine(Protocol):
    """An engine whose property `remote` is True."""

    def call_before_waiting(self, hook: Callable[[], None]) -> None:
        """Call `hook` in each thread that is about to wait for an answer. An exception of `hook` ends the call."""


class PendingAppend(Protocol):
    """An append that was begun, and may not have ended yet."""

    @property
    def failed(self) -> bool:
        """True if the append is known to have failed."""

    def end(self) -> Appended:
        """Wait for the end of the append. Blocks. Raises the errors of `Partition.append`."""


class BeginsAppends(Protocol):
    """A partition to which several appends can be under way at the same time."""

    def begin_append(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> PendingAppend:
        """Begin an append that follows all earlier appends. Blocks. Raises the errors of `Partition.append`.

        Right before sending, `unless` is called; if it returns True, nothing is sent, and the append fails.
        """
