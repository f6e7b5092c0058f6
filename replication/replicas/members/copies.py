"""The directories that have a copy of the journal of queues and of the records of progress: those that serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from topicfs.replication.replicas.members.member import ReplicatingDirectories, ReplicatingDirectory
from topicfs.storage.messages import reason_of


class MembersWithCopies:
    """See `coordination.shares.journal.JournalPlaces` and `storage.checkpoints.copies.RecordCopies`."""

    def __init__(
        self, members: ReplicatingDirectories, directory_failed: Callable[[ReplicatingDirectory], None]
    ) -> None:
        self._members = members
        self._directory_failed = directory_failed

    def directories(self) -> Sequence[Path]:
        return tuple(member.path for member in self._members.serving)

    def failed(self, directory: Path, error: OSError) -> None:
        """Go on without a directory at once: what is appended next must not wait for its copy, or be in sync there."""
        # With the locks of groups and records: nobody who holds a partition's lock takes one of these.
        for member in self._members:
            if member.path == directory:
                member.fail(f"failed: {reason_of(error)}")
                self._directory_failed(member)
