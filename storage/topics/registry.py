"""The topics' own settings, and pending changes of topics: one plain file in every data directory.

    topicfs.topics:  {"version": 1, "revision": 7, "topics": {"orders": {
                         "id": "1EvPSKI_SvihSIy3lMKMvg", "overrides": {"retention.ms": "-1"},
                         "pending": "create", "partitions": 3}}}

A broker keeps such data in its metadata log, and ignores an unknown plain file. `pending` is written before the first
directory changes and removed after the last one has changed, so that after a kill the next opening can complete the
change: `create` until there are `partitions` directories, `delete` until there is none. If a data directory is
missing, `partitions` also shows which partitions are missing. `cluster`, in a broker's directory, has the overrides
that were taken from the broker's metadata log. `groups`, if there are any, has the settings of groups by name:
`"groups": {"billing": {"commit": "manual"}}`. `directories`, if there are several, lists them: one that is now empty
or gone is on an unmounted disk, and must not be taken for a new directory.

Every data directory has the same content, so that losing one directory loses no setting. Each change is written to
one directory after the other, under the next `revision`. After a kill during these writes the copies differ, and the
newest copy counts. Topics that only an older copy has are kept, because the directory of that copy was used alone in
the meantime. Topics that were being created are an exception: their creation was undone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError

if TYPE_CHECKING:
    from topicfs.storage.directories.cluster_metadata import ClusterImage

VERSION = 1


class PendingChange(Enum):
    """A change that was begun, and may not have ended."""

    NOTHING = ""
    CREATE = "create"
    DELETE = "delete"


_NOTHING: Mapping[str, str] = MappingProxyType({})


class TopicEntry(NamedTuple):
    """The entry of one topic."""

    topic_id: str
    overrides: Mapping[str, str] = _NOTHING
    pending: PendingChange = PendingChange.NOTHING
    partitions: int = 0
    """Number of partitions; while `pending` is CREATE, the number to create; 0 if it is not known."""
    cluster: Mapping[str, str] = _NOTHING
    """The `overrides` that a broker's cluster has set, as last read from its metadata log."""


class RegistryCopy(NamedTuple):
    """The content of one file."""

    entries: Mapping[str, TopicEntry]
    revision: int = 0
    directories: tuple[str, ...] = ()
    """The absolute paths of all data directories; empty if there is only one."""
    groups: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """The settings of groups by name, only of groups that have some."""


def encode_registry(copy: RegistryCopy) -> bytes:
    """Return the file's bytes: readable JSON, with topics sorted by name."""
    import json  # Here, because a server of a new directory starts without it.

    topics = {name: _plain(copy.entries[name]) for name in sorted(copy.entries)}
    content = {"version": VERSION, "revision": copy.revision, "topics": topics}
    if copy.directories:
        content["directories"] = list(copy.directories)
    if copy.groups:
        content["groups"] = {name: dict(copy.groups[name]) for name in sorted(copy.groups)}
    return (json.dumps(content, indent=1) + "\n").encode()


def decode_registry(data: bytes, *, file: Path) -> RegistryCopy:
    """Parse the file's bytes; ignore unknown fields, which a newer version wrote. Raises CorruptionError."""
    import json

    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise CorruptionError(file, 0, f"version {content['version']}, expected {VERSION}")
        entries = {name: _entry(plain) for name, plain in content["topics"].items()}
        directories = tuple(map(str, content.get("directories", ())))
        groups = {name: _texts(settings) for name, settings in content.get("groups", {}).items()}
        return RegistryCopy(entries, int(content.get("revision", 0)), directories, groups)
    except json.JSONDecodeError as error:
        raise CorruptionError(file, error.pos, f"not JSON: {error.msg}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptionError(
            file, 0, f"unexpected content: {type(error).__name__}: {str(error)[:80]}"
        ) from None


def read_copy(directory: Path, files: FileSystem) -> RegistryCopy:
    """Read a data directory's file; if it is missing, return no topics. Raises CorruptionError, OSError."""
    path = directory / names.TOPIC_SETTINGS
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return RegistryCopy({})
    return decode_registry(data, file=path)


def merge_copies(copies: Iterable[RegistryCopy]) -> RegistryCopy:
    """Return the content that counts if copies differ.

    It is the content of the newest copy, with the topics and groups that only older copies have. Topics of older
    copies that were being created are left out.
    """
    newest_first = sorted(copies, key=lambda copy: copy.revision, reverse=True)
    if not newest_first:
        return RegistryCopy({})
    merged = dict(newest_first[0].entries)
    groups = dict(newest_first[0].groups)
    for older in newest_first[1:]:
        groups = {**older.groups, **groups}
        for name, entry in older.entries.items():
            if entry.pending is not PendingChange.CREATE:
                merged.setdefault(name, entry)
    return newest_first[0]._replace(entries=merged, groups=groups)


class TopicRegistry:
    """The files, and their content in memory. The manager's lock allows one change at a time."""

    def __init__(
        self, copies: Mapping[Path, RegistryCopy], files: FileSystem, *, all_directories: tuple[str, ...] = ()
    ) -> None:
        """Make a registry of `copies`. `all_directories` also has the directories whose copies cannot be read."""
        self.continue_without: Callable[[Path, OSError], bool] = lambda _directory, _error: False
        """Called if a directory's copy cannot be written. Returns True if the change continues without the
        directory's copy.
        """
        self.lend: Callable[[Path, Callable[[], None]], None] = lambda _directory, write: write()
        """Writes a directory's copy, if possible even on a full disk."""
        self.cluster: ClusterImage | None = None
        """The cluster of the broker that owns these directories; None if no broker owns them."""
        self._files = files
        merged = merge_copies(copies.values())
        self.entries, self._revision = merged.entries, merged.revision
        """The entries by topic. They are replaced as a whole, like `groups`, the settings of groups."""
        self.groups = merged.groups
        self._all_directories = all_directories
        self._directories = tuple(copies)
        self._stale = {path for path, copy in copies.items() if copy != self._content}
        """Directories whose copy may differ from the content in memory."""

    @classmethod
    def read(cls, directory: Path, files: FileSystem) -> TopicRegistry:
        """Read the registry of a single directory. Raises CorruptionError, OSError."""
        copy = read_copy(directory, files)
        return cls({directory: copy}, files, all_directories=copy.directories)

    @property
    def _content(self) -> RegistryCopy:
        return RegistryCopy(self.entries, self._revision, self._all_directories, self.groups)

    def leave(self, directory: Path) -> None:
        """Stop writing to `directory`, which failed."""
        self._directories = tuple(one for one in self._directories if one != directory)
        self._stale.discard(directory)

    def join(self, directory: Path) -> None:
        """Add a directory and its own entries, which `update_copies` writes. Raises CorruptionError, OSError."""
        copy = read_copy(directory, self._files)
        # Even if the directory's revision is newer: the content that is served now takes precedence.
        old = RegistryCopy(copy.entries, -1, groups=copy.groups)
        merged = merge_copies([self._content, old])
        self.entries, self.groups = merged.entries, merged.groups
        self._revision = max(self._revision, copy.revision) + 1
        self._directories = (*self._directories, directory)
        self._stale = set(self._directories)

    def put(self, changes: Mapping[str, TopicEntry | None]) -> None:
        """Set or (None) remove the entries of topics, all or none. They are on disk on return. Raises OSError."""
        self.update_copies()
        entries = dict(self.entries)
        for name, entry in changes.items():
            if entry is None:
                entries.pop(name, None)
            else:
                entries[name] = entry
        self._replace(entries, self.groups)

    def put_group(self, group: str, overrides: Mapping[str, str]) -> None:
        """Set a group's settings (empty: remove them), on disk on return. An error changes nothing. Raises OSError."""
        self.update_copies()
        groups = {name: own for name, own in self.groups.items() if name != group}
        if overrides:
            groups[group] = MappingProxyType(dict(overrides))
        self._replace(self.entries, groups)

    def _replace(self, entries: Mapping[str, TopicEntry], groups: Mapping[str, Mapping[str, str]]) -> None:
        if (entries, groups) == (self.entries, self.groups):
            return
        if not self._directories:
            raise OSError(errno.EIO, "no data directory is online")
        old = self.entries, self.groups
        self.entries, self.groups = entries, groups
        self._revision += 1
        self._stale = set(self._directories)
        try:
            self.update_copies()
        except OSError:
            # A newer revision than any that may be on a disk.
            self.entries, self.groups = old
            self._revision, self._stale = self._revision + 1, set(self._directories)
            with suppress(OSError):
                self.update_copies()
            raise

    def update_copies(self) -> None:
        """Write each copy that a failed change left out of date, so that no later start repeats it. Raises OSError."""
        for directory in self._directories:
            if directory in self._stale:
                try:
                    self.lend(directory, partial(self._write, directory))
                except OSError as error:
                    if not self.continue_without(directory, error):
                        raise
                self._stale.discard(directory)

    def _write(self, directory: Path) -> None:
        content = encode_registry(self._content)
        write_atomically(self._files, directory / names.TOPIC_SETTINGS, content)


def _plain(entry: TopicEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {"id": entry.topic_id, "overrides": dict(entry.overrides)}
    if entry.pending is not PendingChange.NOTHING:
        plain["pending"] = entry.pending.value
    if entry.partitions:
        plain["partitions"] = entry.partitions
    if entry.cluster:
        plain["cluster"] = dict(entry.cluster)
    return plain


def _entry(plain: dict[str, Any]) -> TopicEntry:
    return TopicEntry(
        topic_id=str(plain["id"]),
        overrides=_texts(plain["overrides"]),
        pending=PendingChange(plain.get("pending", "")),
        partitions=int(plain.get("partitions", 0)),
        cluster=_texts(plain.get("cluster", {})),
    )


def _texts(overrides: dict[str, str]) -> Mapping[str, str]:
    if not all(isinstance(text, str) for item in overrides.items() for text in item):
        raise ValueError("overrides must be text")
    return MappingProxyType(overrides)
