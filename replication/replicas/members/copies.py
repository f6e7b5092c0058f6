"""The directories that have a copy of the journal of queues and of the records of progress: those that serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from topicfs.replication.replicas.members.member import ReplicatingDirectories


class MembersWithCopies:
    """See `coordination.shares.journal.JournalPlaces` and `storage.checkpoints.copies.RecordCopies`."""

    def __init__(self, members: ReplicatingDirectories, failed: Callable[[Path, OSError], None]) -> None:
        self._members = members
        self._failed = failed

    def directories(self) -> Sequence[Path]:
        return tuple(member.path for member in self._members.serving)

    def failed(self, directory: Path, error: OSError) -> None:
        self._failed(directory, error)
