"""The poll of an open file that waits: the kernel is told once when the file may have become ready."""

from __future__ import annotations

from topicfs.fusefs.handle import Notify
from topicfs.fusefs.threads.blocking_calls import Listen
from topicfs.storage.engine import Cancel


class WaitingPoll:
    """The last poll of an open file, until the kernel is notified. Used from the event loop's thread.

    All programs that poll one open file wait in one queue of the kernel, and a notification of the last poll wakes them
    all. Every poll waits, whatever it is answered: an edge-triggered epoll(7) polls again only after a notification.
    """

    def __init__(self, news: Listen) -> None:
        self._news = news
        self._notify: Notify | None = None
        self._cancel: Cancel | None = None

    def begin(self, notify: Notify | None) -> None:
        """Notify the kernel at the next news. Called before the caller looks: no record comes between the look and this.

        The call that is owed to an earlier poll is kept: this poll may see a record before the news of it is delivered,
        and then no other news comes. Without `notify` nobody waits for this poll.
        """
        if notify is not None:
            self._notify = notify
            if self._cancel is None:
                self._cancel = self._news(self.tell)

    def tell(self) -> None:
        """Notify the kernel, if it waits."""
        notify = self._notify
        self.forget()
        if notify is not None:
            notify.notify()

    def forget(self) -> None:
        """Wait no longer: the kernel is notified, or the file is closed."""
        if self._cancel is not None:
            self._cancel()
        self._notify = self._cancel = None
