"""The topics' own settings, and changes of topics that are under way: one plain file of the data directory.

    topicfs.topics:  {"version": 1, "topics": {"orders": {
                        "id": "1EvPSKI_SvihSIy3lMKMvg", "overrides": {"retention.ms": "-1"},
                        "pending": "create", "partitions": 3}}}

A broker keeps these in its metadata log and passes an unknown plain file over. `pending` is written before
the first directory changes and taken away after the last one did, so that whoever opens the directory after a
kill can finish: `create` until there are `partitions` directories, `delete` until there is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from storage.checkpoints.atomic import write_atomically
from storage.disk import names
from storage.disk.filesystem import FileSystem
from storage.errors import CorruptionError

VERSION = 1


class Pending(Enum):
    """A change that began and is not known to have ended."""

    NOTHING = ""
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """What is kept of one topic."""

    topic_id: str
    overrides: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    pending: Pending = Pending.NOTHING
    partitions: int = 0
    """How many there are to be, while `pending` is CREATE."""


def encode_registry(entries: Mapping[str, TopicEntry]) -> bytes:
    """Give the file's bytes: readable, topics by name."""
    topics = {name: _plain(entries[name]) for name in sorted(entries)}
    return (json.dumps({"version": VERSION, "topics": topics}, indent=1) + "\n").encode()


def decode_registry(data: bytes, *, file: Path) -> dict[str, TopicEntry]:
    """Read the file's bytes; raises CorruptionError. Unknown fields are a newer writer's and passed over."""
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise CorruptionError(file, 0, f"version {content['version']}, expected {VERSION}")
        return {name: _entry(plain) for name, plain in content["topics"].items()}
    except json.JSONDecodeError as error:
        raise CorruptionError(file, error.pos, f"no JSON: {error.msg}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(file, 0, f"not as expected: {error!r}") from None


class TopicRegistry:
    """The file and its content in memory. Changes come from one thread at a time (the manager's lock)."""

    def __init__(
        self, directory: Path, files: FileSystem, entries: Mapping[str, TopicEntry] | None = None
    ) -> None:
        self._path = directory / names.TOPIC_SETTINGS
        self._files = files
        self._entries: Mapping[str, TopicEntry] = entries or {}
        self._uncertain = False

    @classmethod
    def read(cls, directory: Path, files: FileSystem) -> TopicRegistry:
        """Read the file; a missing one has no topics. Raises CorruptionError, OSError."""
        path = directory / names.TOPIC_SETTINGS
        try:
            data = files.read_bytes(path)
        except FileNotFoundError:
            return cls(directory, files)
        return cls(directory, files, decode_registry(data, file=path))

    @property
    def entries(self) -> Mapping[str, TopicEntry]:
        """By topic; a snapshot."""
        return self._entries

    def put(self, changes: Mapping[str, TopicEntry | None]) -> None:
        """Set topics' entries, None removes one: on disk when this returns, and all or nothing (OSError)."""
        self.settle()
        entries = dict(self._entries)
        for name, entry in changes.items():
            if entry is None:
                entries.pop(name, None)
            else:
                entries[name] = entry
        if entries == self._entries:
            return
        self._uncertain = True
        try:
            self._write(entries)
        except OSError:
            with suppress(OSError):
                self.settle()
            raise
        self._entries = entries

    def settle(self) -> None:
        """Let the file say again what holds, where a failed change may have left its content (OSError).

        Else a topic whose deletion failed, and which is used on, would be deleted by the next opening.
        """
        if self._uncertain:
            self._write(self._entries)

    def _write(self, entries: Mapping[str, TopicEntry]) -> None:
        write_atomically(self._files, self._path, encode_registry(entries))
        self._uncertain = False


def _plain(entry: TopicEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {"id": entry.topic_id, "overrides": dict(entry.overrides)}
    if entry.pending is not Pending.NOTHING:
        plain["pending"] = entry.pending.value
    if entry.pending is Pending.CREATE:
        plain["partitions"] = entry.partitions
    return plain


def _entry(plain: dict[str, Any]) -> TopicEntry:
    overrides = plain["overrides"]
    if not all(isinstance(text, str) for item in overrides.items() for text in item):
        raise ValueError("overrides must be text")
    return TopicEntry(
        topic_id=str(plain["id"]),
        overrides=MappingProxyType(overrides),
        pending=Pending(plain.get("pending", "")),
        partitions=int(plain.get("partitions", 0)),
    )
