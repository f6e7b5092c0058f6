"""The embedded engine: topics over data directories, one copy of each partition, with groups, queues and a scrub."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from topicfs.storage.directories.directories import Directories
from topicfs.storage.duties.schedule import Duty
from topicfs.storage.manager.manager import LogManager
from topicfs.storage.messages import WarningBook
from topicfs.storage.model import Timestamp
from topicfs.storage.topics.registry import TopicRegistry
from topicfs.storage.topics.topic import LogTopic

if TYPE_CHECKING:
    from topicfs.coordination.groups.runtime.service import EmbeddedGroups
    from topicfs.coordination.shares.groups import QueueGroups
    from topicfs.replication.embedded_services import EmbeddedServices
    from topicfs.replication.scrub.scrubber import Scrubber


class EmbeddedEngine(LogManager):
    """Implements coordination.engine.Engine. Made by `replication.open_engine`."""

    serves_clients = False

    def __init__(
        self,
        directories: Directories,
        registry: TopicRegistry,
        warnings: WarningBook,
        topics: Mapping[str, LogTopic],
    ) -> None:
        super().__init__(directories, registry, warnings, topics)
        self._making = Lock()
        self._made: EmbeddedServices | None = None
        self._ended = False

    @property
    def _above(self) -> EmbeddedServices:
        """The services that use the logs, made on first use: importing them takes a tenth of a server's start."""
        with self._making:
            if self._made is None:
                from topicfs.replication.embedded_services import EmbeddedServices

                self._made = EmbeddedServices(self, self._directories, self._warnings.add)
                if self._ended:
                    self._made.close()
            return self._made

    @property
    def scrubber(self) -> Scrubber:
        return self._above.scrubber

    @property
    def scrub(self) -> str | None:
        return self._above.scrubber.line

    @property
    def groups(self) -> EmbeddedGroups:
        return self._above.groups

    @property
    def share_groups(self) -> QueueGroups:
        return self._above.queues

    @property
    def replication(self) -> None:
        return None

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> LogTopic:
        # Do not hold the lock of the topics here: the groups' thread takes this lock as well.
        self.groups.prepare_new_topic(name)
        return super().create_topic(name, partitions=partitions, overrides=overrides, topic_id=topic_id)

    def delete_topic(self, name: str, *, with_records: bool = True) -> None:
        self.groups.load()
        super().delete_topic(name, with_records=with_records)

    def _do_above(self, due: tuple[Duty, ...], now: Timestamp) -> None:
        above = self._above
        if Duty.POSITIONS in due:
            self._keep(Duty.POSITIONS.value, lambda: above.groups.expire(now))
        self._keep("share groups", lambda: above.maintain_queues(now))
        if Duty.SCRUB in due:
            above.scrubber.maintain(now, self._directories.config.scrub_interval_hours)

    def close(self) -> None:
        with self._making:
            self._ended = True
        if self._made is not None:
            self._made.close()
        super().close()
