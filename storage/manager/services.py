"""The services of an engine over its logs: groups, queues, staged writes, compaction and scrubs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from topicfs.coordination.shares.groups import QueueGroups
from topicfs.coordination.shares.journal import OnePlace
from topicfs.storage.directories.directories import Directories
from topicfs.storage.duties.log_cleaner import Lend, LogCleaner
from topicfs.storage.duties.plan import PlannedStep, plan_log
from topicfs.storage.duties.scrubber import scrubber_of_logs
from topicfs.storage.duties.staged_writes import StagedWrites
from topicfs.storage.log.log import Log
from topicfs.storage.manager.groups import make_groups
from topicfs.storage.messages import Say
from topicfs.storage.model import Timestamp

if TYPE_CHECKING:
    from topicfs.storage.manager.manager import LogManager


class Services:
    """The services of one engine; none of them reads anything before it is used."""

    def __init__(
        self,
        engine: LogManager,
        directories: Directories,
        warn: Say,
        *,
        logs: Callable[[], Iterable[Log]],
        write_checkpoints: Callable[[], None],
        lend: Lend,
    ) -> None:
        """Make all services; the last three arguments are for the cleaner."""
        files, clock = directories.files, directories.clock
        follows = engine.groups_are_served_elsewhere
        self.groups = make_groups(engine, directories.config, clock, follows=follows)
        self.queues = QueueGroups(engine, files, OnePlace(directories.online[0].data.path), clock)
        self.staged = StagedWrites(directories, engine, warn=warn)
        self.cleaner = LogCleaner(
            directories.settings,
            logs,
            clock=clock,
            warn=warn,
            write_checkpoints=write_checkpoints,
            lend=lend,
        )
        self.scrubber = scrubber_of_logs(engine.topics, directories, warn)
        self._logs = logs

    def plan(self, now: Timestamp) -> tuple[PlannedStep, ...]:
        """Return what maintenance would roll, delete and compact now."""
        logs = [log for log in self._logs() if log.offline_reason is None]
        return tuple(step for log in logs for step in plan_log(log, now))

    def close(self) -> None:
        """Stop all services, after the work in progress."""
        self.groups.close()
        self.queues.close()
        self.staged.stop()
        self.cleaner.stop()
        self.scrubber.stop()
