"""The services of an embedded engine that use its logs: groups, queues and scrubs."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from topicfs.coordination.groups.runtime.service import GroupsOwner, make_groups
from topicfs.storage.directories.directories import Directories
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Timestamp

if TYPE_CHECKING:
    from topicfs.coordination.shares.groups import QueueGroups
    from topicfs.replication.scrub.scrubber import Scrubber


class EmbeddedServices:
    """Makes the queues and the scrubber on first use, because importing them takes a sixth of a server's start."""

    def __init__(self, engine: GroupsOwner, directories: Directories, warn: ReportLine) -> None:
        self._engine, self._directories, self._warn = engine, directories, warn
        self.groups = make_groups(engine, directories.config, directories.clock)
        self._making = Lock()
        self._queues: QueueGroups | None = None
        self._scrubber: Scrubber | None = None
        self._closed = False

    @property
    def queues(self) -> QueueGroups:
        with self._making:
            if self._queues is None:
                from topicfs.coordination.shares.groups import QueueGroups
                from topicfs.coordination.shares.journal import QueueJournal

                places = self._directories
                journal = partial(
                    QueueJournal, places.files, lambda: [each.data.path for each in places.online]
                )
                self._queues = QueueGroups(self._engine, journal, places.clock)
            return self._queues

    @property
    def scrubber(self) -> Scrubber:
        with self._making:
            if self._scrubber is None:
                from topicfs.replication.scrub.scrubber import scrubber_of_logs

                self._scrubber = scrubber_of_logs(self._engine.topics, self._directories, self._warn)
                if self._closed:
                    self._scrubber.stop()
            return self._scrubber

    def maintain_queues(self, now: Timestamp) -> None:
        """Do the duties of the queues, if they are used. Raises StorageError, OSError."""
        if self._queues is not None:
            self._queues.maintain(now)

    def close(self) -> None:
        self.groups.close()
        with self._making:
            self._closed = True
        if self._queues is not None:
            self._queues.close()
        if self._scrubber is not None:
            self._scrubber.stop()
