"""The services of an engine over its logs: staged writes, compaction, and the duties of unopened partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from topicfs.storage.directories.directories import Directories
from topicfs.storage.duties.log_cleaner import LogCleaner, RunWithReserve
from topicfs.storage.duties.staged_writes import StagedWrites
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine
from topicfs.storage.topics.unopened_partitions import UnopenedDuties

if TYPE_CHECKING:
    from topicfs.storage.manager.manager import LogManager


class Services:
    """The services of one engine. They read nothing before they are used."""

    def __init__(
        self,
        engine: LogManager,
        directories: Directories,
        warn: ReportLine,
        *,
        logs: Callable[[], Iterable[Log]],
        write_checkpoints: Callable[[], None],
        lend: RunWithReserve,
    ) -> None:
        """Make all services; the last three arguments are for the cleaner."""
        self.staged = StagedWrites(directories, engine, warn=warn)
        self.unopened = UnopenedDuties(directories, engine.topics)
        self.cleaner = LogCleaner(
            directories.settings,
            logs,
            clock=directories.clock,
            warn=warn,
            write_checkpoints=write_checkpoints,
            lend=lend,
        )

    def close(self) -> None:
        """Stop all services once their present work is done."""
        self.staged.stop()
        self.cleaner.stop()
