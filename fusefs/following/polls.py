"""The poll of an open file that waits: the kernel is told once when the file may have become ready."""

from __future__ import annotations

from typing import Protocol

from storage.engine import Cancel


class Notify(Protocol):
    """A poll of the kernel, which is notified once that the file has become ready."""

    def notify(self) -> None: ...


class WaitingPoll:
    """The last poll of an open file, as long as it waits. Used from the event loop's thread."""

    def __init__(self) -> None:
        self._notify: Notify | None = None
        self._cancel: Cancel | None = None

    @property
    def waits(self) -> bool:
        return self._notify is not None

    def begin(self, notify: Notify) -> None:
        """Wait, to notify the kernel at the next `tell`."""
        self._notify = notify

    def woken_by(self, cancel: Cancel) -> None:
        """Keep what prevents the call that was arranged for the next news."""
        self._cancel = cancel

    def tell(self) -> None:
        """Notify the kernel, if it waits."""
        notify = self._notify
        self.forget()
        if notify is not None:
            notify.notify()

    def forget(self) -> None:
        """Wait no longer: another poll came, or the file is closed."""
        if self._cancel is not None:
            self._cancel()
        self._notify = self._cancel = None
