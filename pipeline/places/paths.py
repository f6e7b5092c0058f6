"""The data directories in the option `path`: one, several separated by commas, or a glob. `without` leaves some out."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from topicfs.pipeline.errors import PipelineError
from topicfs.storage.directories.contents import Contents, check_not_mounted, read_contents
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import META_PROPERTIES
from topicfs.storage.errors import NotALogDirectoryError
from topicfs.storage.messages import reason_of

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(//(?P<host>[^/]*))?(?=/)")
"""The beginning of a URI, up to its path."""


LOST_REPLICA = "if its replicas are lost, leave it out: --without DIR, in Spark the option without"


@contextmanager
def with_replica_hint() -> Iterator[None]:
    """Turn an OSError in the block, for example of a failed disk, into a PipelineError that names the remedy."""
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{reason_of(error)}; {LOST_REPLICA}") from error


def absolute(text: str) -> tuple[Path, ...]:
    """Return the paths in an option, made absolute. They need not exist, and globs are not expanded."""
    return tuple(Path(_local(name)).absolute() for name in _names(text))


def data_directories(text: str, without: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return each directory once, absolute, in the order named; the directories of a glob are sorted.

    `~` is the user's home. As in Spark, `file:/srv/topics` and `file:///srv/topics` name local directories. A comma
    or bracket in the name of an existing directory is part of that name. Directories in `without` are left out.
    Raises PipelineError if a name matches no directory, or if a directory is in a mount of topicfs.
    """
    found: dict[Path, None] = {}
    for name in _names(text):
        if not without or Path(_local(name)).absolute() not in without:
            found.update(dict.fromkeys(one.absolute() for one in _directories(name)))
    for one in without:
        found.pop(one, None)  # A glob may have matched this directory.
    if not found:
        raise PipelineError("the option path names no data directory")
    for one in found:
        try:
            check_not_mounted(one)
        except NotALogDirectoryError as error:
            raise PipelineError(str(error)) from None
    return tuple(found)


def _names(text: str) -> list[str]:
    """Return the names in an option; empty names are dropped."""
    text = text.strip()
    names = [text] if text and Path(text).is_dir() else text.split(",")
    return [one.strip() for one in names if one.strip()]


def _directories(name: str) -> list[Path]:
    """Return the directories that a name matches. Raises PipelineError if none match."""
    if Path(name).is_dir():
        return [Path(name)]
    local = _local(name)
    for one in (local, unquote(local)):
        if Path(one).is_dir():
            return [Path(one)]
    matches = sorted(one for one in map(Path, glob.glob(local)) if one.is_dir())  # noqa: PTH207 (an absolute pattern)
    if not matches:
        raise PipelineError(
            f"{name}: no such directory; path takes one, several after commas, or a glob; {LOST_REPLICA}"
        )
    return matches


def _local(name: str) -> str:
    """Return a name as a local path, with `~` expanded. Raises PipelineError if it names another machine."""
    uri = _URI.match(name)
    if uri is None:
        return os.path.expanduser(name)  # noqa: PTH111 (leaves a user that is none as it stands)
    if uri["scheme"].lower() != "file" or uri["host"] not in {None, "", "localhost"}:
        raise PipelineError(
            f"{name}: not a directory of this machine; path names local data directories, such as /srv/topics"
        )
    return name[uri.end() :]


def contents_of(path: Path, files: FileSystem) -> Contents:
    """Return a data directory's contents. Raises OSError, NotALogDirectoryError.

    Raises PipelineError if the directory has neither meta.properties nor a partition.
    """
    entries = files.list_directory(path)
    contents = read_contents(entries, path)
    if not contents.partitions and META_PROPERTIES not in {entry.name for entry in entries}:
        raise PipelineError(
            f"{path}: not a data directory: it has neither {META_PROPERTIES} nor a partition; {LOST_REPLICA}"
        )
    return contents
