"""Atomic replacement of a small file: a crash leaves the old content or the new (kafka-storage.md#atomic-replacement)."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.model import Buffer

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(files: FileSystem, path: Path, data: Buffer, *, temporary: Path | None = None) -> None:
    """Write `<path>.tmp` (or `temporary`), flush it, rename it over `path`, flush the directory (blocking).

    Raises OSError; `path` then has its old content or, if only the last step failed, perhaps the new one.
    """
    temporary = temporary or _temporary(path)
    try:
        files.write_bytes(temporary, data, sync=True)
        files.rename(temporary, path)
    except OSError:
        # On a full disk, half a file would only take space.
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_directory(path.parent)


def prepare(files: FileSystem, path: Path, data: Buffer) -> None:
    """Write `<path>.tmp` unflushed (OSError): the first half of `write_atomically`, for many files at a time."""
    files.write_bytes(_temporary(path), data)


def put_in_place(files: FileSystem, path: Path, *, flush: bool = True) -> None:
    """Flush what `prepare` wrote, unless `flush` is off, and rename it into place (OSError; blocking)."""
    temporary = _temporary(path)
    if flush:
        with closing(files.open(temporary)) as file:
            file.sync()
    files.rename(temporary, path)
    if flush:
        files.sync_directory(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY_SUFFIX)
