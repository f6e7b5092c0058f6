"""The data directories that an option `path` names: one, several after commas, globs."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from pipeline.errors import PipelineError
from storage.checkpoints.partition_metadata import read_topic_id
from storage.disk.filesystem import Entry, FileSystem
from storage.disk.names import META_PROPERTIES
from storage.errors import CorruptionError
from storage.manager.contents import Contents


def data_directories(text: str) -> tuple[Path, ...]:
    """Give each directory once, absolute, in the order named; those of a glob ascending.

    A comma or a bracket in the name of a directory that is there belongs to it. PipelineError where one is none.
    """
    whole = Path(text.strip())
    names = [str(whole)] if whole.is_dir() else [one.strip() for one in text.split(",") if one.strip()]
    found: dict[Path, None] = {}
    for name in names:
        if Path(name).is_dir():
            found[Path(name).absolute()] = None
            continue
        matches = sorted(one for one in map(Path, glob.glob(name)) if one.is_dir())  # noqa: PTH207 (an absolute pattern)
        if not matches:
            raise PipelineError(
                f"{name}: no data directory there; path names one, several after commas, or a glob"
            )
        found.update(dict.fromkeys(one.absolute() for one in matches))
    if not found:
        raise PipelineError("path names no data directory")
    return tuple(found)


def check_is_data_directory(path: Path, entries: Iterable[Entry], contents: Contents) -> None:
    """Whether a directory's entries, and what was read from them, are a data directory's (PipelineError)."""
    if not contents.partitions and META_PROPERTIES not in {entry.name for entry in entries}:
        raise PipelineError(f"{path}: no data directory: neither {META_PROPERTIES} nor a partition there")


def topic_id_of(directory: Path, files: FileSystem) -> str | None:
    """Read the topic id in a partition's directory; None without one, or where its file is damaged (OSError)."""
    try:
        return read_topic_id(files, directory)
    except CorruptionError:
        return None
