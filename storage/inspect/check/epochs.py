"""A partition's leader-epoch-checkpoint, as far as it can be read."""

from __future__ import annotations

from pathlib import Path

from storage.checkpoints.leader_epochs import Entries, decode_epochs
from storage.disk.filesystem import FileSystem
from storage.disk.names import LEADER_EPOCHS
from storage.errors import CorruptionError
from storage.inspect.check.findings import Finding


def read_epochs(files: FileSystem, directory: Path) -> tuple[Entries, Finding | None]:
    """Read a partition directory's entries; none where there is no file, or none that can be read."""
    path = directory / LEADER_EPOCHS
    try:
        return decode_epochs(files.read_bytes(path), file=path), None
    except CorruptionError as error:
        return (), Finding.of(error)
    except FileNotFoundError:
        return (), None
