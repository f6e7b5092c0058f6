"""The directories that have a copy of the journal of queues and of the records of progress: those that serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storage.messages import reason_of
from storage.replicas.members.member import ReplicatingDirectories


class MembersWithCopies:
    """See `storage.shares.journal.JournalPlaces` and `storage.checkpoints.copies.RecordCopies`."""

    def __init__(self, members: ReplicatingDirectories) -> None:
        self._members = members

    def directories(self) -> Sequence[Path]:
        return tuple(member.path for member in self._members.serving)

    def failed(self, directory: Path, error: OSError) -> None:
        for member in self._members:
            if member.path == directory:
                member.fail(f"failed: {reason_of(error)}")
