"""Replaces a small file atomically: a crash leaves the old or the new content (kafka-storage.md#atomic-replacement)."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.model import Buffer

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(files: FileSystem, path: Path, data: Buffer, *, temporary: Path | None = None) -> None:
    """Write `<path>.tmp` (or `temporary`), flush it, rename it to `path`, and flush the directory. Blocks.

    Raises OSError. After an error `path` has its old content, or the new content if only the last step failed.
    """
    temporary = temporary or _temporary(path)
    try:
        files.write_bytes(temporary, data, sync=True)
        files.rename(temporary, path)
    except OSError:
        # On a full disk, a half-written file would only take space.
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_directory(path.parent)


def prepare(files: FileSystem, path: Path, data: Buffer) -> None:
    """Write `<path>.tmp` without a flush; `put_in_place` completes the replacement later. Raises OSError."""
    files.write_bytes(_temporary(path), data)


def put_in_place(files: FileSystem, path: Path, *, flush: bool = True) -> None:
    """Flush the file that `prepare` wrote, unless `flush` is False, and rename it to `path`. Blocks. Raises OSError."""
    temporary = _temporary(path)
    if flush:
        with closing(files.open(temporary)) as file:
            file.sync()
    files.rename(temporary, path)
    if flush:
        files.sync_directory(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY_SUFFIX)
