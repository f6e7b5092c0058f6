"""The commits of an archive: each has the files of a round and the offsets at which the next one begins, or neither counts."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from topicfs.pipeline.archives.files import archived_files
from topicfs.pipeline.source.query.offsets import StreamState

SMALL_BYTES = 32 << 20
SMALL_FILES = 10
"""So many small files of a topic and date are merged into one."""


class ArchiveCommits(Protocol):
    """The commits of one archive."""

    has_topic: bool
    """True if its files have a column `topic`, beside the folders."""

    def last(self) -> tuple[int, StreamState | None]:
        """Return the number of the last commit and where it ended; -1 and None before the first (PipelineError, OSError)."""
        ...

    def plan(self, number: int, state: StreamState) -> StreamState:
        """Note where a round will end before it writes; return what was noted for this number first."""
        ...

    def planned(self, number: int) -> StreamState | None:
        """Return what `plan` noted for a round that was not committed."""
        ...

    def merges(self, number: int) -> bool:
        """Return whether this commit can also replace files."""
        ...

    def commit(
        self, number: int, state: StreamState, added: Collection[Path], replaced: Collection[Path]
    ) -> None:
        """Make files count, and others no longer. Raises PipelineError if another run did so meanwhile, OSError."""
        ...


def small_groups(archive: Path) -> list[list[Path]]:
    """Return the files that should be merged, a list a folder, in the order of their commits."""
    found: dict[Path, list[Path]] = {}
    for file in archived_files(archive):
        if file.stat().st_size < SMALL_BYTES:
            found.setdefault(file.parent, []).append(file)
    return [files for files in found.values() if len(files) >= SMALL_FILES]
