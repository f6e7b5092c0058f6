"""The services of an embedded engine that use its logs: groups, queues and scrubs."""

from __future__ import annotations

from functools import partial

from topicfs.coordination.embedded_groups import GroupsOwner, make_groups
from topicfs.coordination.shares.groups import QueueGroups
from topicfs.coordination.shares.journal import QueueJournal
from topicfs.replication.scrub.scrubber import scrubber_of_logs
from topicfs.storage.directories.directories import Directories
from topicfs.storage.messages import ReportLine


class EmbeddedServices:
    def __init__(self, engine: GroupsOwner, directories: Directories, warn: ReportLine) -> None:
        files, clock = directories.files, directories.clock
        self.groups = make_groups(engine, directories.config, clock)
        journal = partial(QueueJournal, files, lambda: [one.data.path for one in directories.online])
        self.queues = QueueGroups(engine, journal, clock)
        self.scrubber = scrubber_of_logs(engine.topics, directories, warn)

    def close(self) -> None:
        self.groups.close()
        self.queues.close()
        self.scrubber.stop()
