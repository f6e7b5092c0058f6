"""`topicfs.queues`: the settings of share groups and the rejected records, which Kafka's records cannot hold.

    {"group": "billing", "settings": {"share.delivery.count.limit": "3"}}
    {"group": "billing", "topic": "orders", "id": "…", "partition": 0, "offset": 42, "time": 1700000000000,
     "by": "limit", "deliveries": 5, "holder": "bash, process 4711"}
    {"group": "billing", "id": "…", "partition": 0, "offset": 42}                       no longer rejected
    {"revision": 7}                                                     the revision of this copy

Each line is a JSON object. If several lines have the same key, the last counts. A line torn by a crash is ignored. A
broker ignores the file: it stores settings of groups elsewhere, and has no dead letters. A rejected record is written
here before its state is stored, so that no rejected record is missing here; its stored state decides whether it *is*
rejected. Beyond MAX_REJECTED records the oldest are dropped. The file is rewritten when most of its lines are
outdated. Each of several directories has a copy. Each change is written to all directories that are online, with a
higher revision. A copy in a directory that was offline therefore has a lower revision, which shows that it is
outdated. It is replaced later.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from topicfs.coordination.share_groups import RejectedBy
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.checkpoints.identifiers import decode_id, encode_id
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.model import Offset, Position, Timestamp

MAX_REJECTED = 10_000
_LINES_BEFORE_REWRITE = 1000


class RejectedKey(NamedTuple):
    group: str
    topic_id: uuid.UUID
    partition: int
    offset: Offset


class RejectedRecord(NamedTuple):
    """A rejected record: why and when it was rejected, and by which holder."""

    topic: str
    time: Timestamp
    by: RejectedBy
    deliveries: int
    holder: str


class _Copy(NamedTuple):
    revision: int
    line_count: int
    """Number of lines in the file, including lines with revisions."""
    lines: Sequence[Mapping[str, Any]]
    """The valid lines, except lines with revisions."""


class QueueJournal:
    """The journal in memory and its copies. Callers must serialize their calls."""

    def __init__(
        self,
        files: FileSystem,
        directories: Callable[[], Sequence[Path]],
        failed: Callable[[Path, OSError], None] = lambda _directory, _error: None,
    ) -> None:
        """Read the newest copy (blocking), skipping invalid lines. Raises OSError.

        `directories` returns the directories that are online now. If one of them cannot be written, but another one
        can, `failed` is called for it; its copy is outdated and is replaced at the next change.
        """
        self._files = files
        self._directories, self._failed = directories, failed
        self.settings: dict[str, dict[str, str]] = {}
        self.rejected: dict[RejectedKey, RejectedRecord] = {}
        copies = {directory: self._read(directory) for directory in directories()}
        newest = max(copies.values(), key=lambda one: (one.revision, one.line_count), default=_Copy(0, 0, ()))
        self._lines, self._revision = newest.line_count, newest.revision
        self._current = {one for one, copy in copies.items() if copy == newest}
        """The directories whose copy is the newest."""
        for line in newest.lines:
            self._replay(line)

    def _read(self, directory: Path) -> _Copy:
        path = directory / names.QUEUES
        lines = self._files.read_bytes(path).split(b"\n") if self._files.exists(path) else []
        found, revision = [], 0
        for line in lines:
            with suppress(ValueError):
                fields = json.loads(line)
                if isinstance(fields, dict) and isinstance(fields.get("group"), str):
                    found.append(fields)
                elif isinstance(fields, dict) and isinstance(fields.get("revision"), int):
                    revision = fields["revision"]
        return _Copy(revision, len(lines), found)

    def _replay(self, line: Mapping[str, Any]) -> None:
        with suppress(KeyError, ValueError, TypeError, AttributeError):
            group = line["group"]
            if "settings" in line:
                self._put_settings(group, {str(name): str(value) for name, value in line["settings"].items()})
                return
            key = RejectedKey(
                group, decode_id(line["id"]), int(line["partition"]), Offset(int(line["offset"]))
            )
            self.rejected.pop(key, None)
            if "by" in line:
                self.rejected[key] = RejectedRecord(
                    line["topic"], line["time"], RejectedBy(line["by"]), line["deliveries"], line["holder"]
                )

    def _put_settings(self, group: str, settings: dict[str, str]) -> None:
        self.settings.pop(group, None)
        if settings:
            self.settings[group] = settings

    # Changes. They are in the file when the call returns. After OSError nothing has changed.

    def set(self, group: str, settings: Mapping[str, str]) -> None:
        self._append([{"group": group, "settings": dict(settings)}])
        self._put_settings(group, dict(settings))

    def reject(self, records: Mapping[RejectedKey, RejectedRecord]) -> None:
        self._append([_rejected_line(key, record) for key, record in records.items()])
        for key, record in records.items():
            self.rejected.pop(key, None)
            self.rejected[key] = record
        while len(self.rejected) > MAX_REJECTED:
            del self.rejected[next(iter(self.rejected))]

    def forget(self, keys: Sequence[RejectedKey]) -> None:
        known = [key for key in keys if key in self.rejected]
        self._append([_key_fields(key) for key in known])
        for key in known:
            del self.rejected[key]

    def forget_group(self, group: str) -> None:
        self.forget([key for key in self.rejected if key.group == group])
        if group in self.settings:
            self.set(group, {})

    def update_copies(self) -> None:
        """Write a complete copy to each online directory that lacks the newest one (blocking). Raises OSError."""
        if set(self._directories()) - self._current:
            self._write_each(b"")

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if not lines:
            return
        live = len(self.rejected) + len(self.settings)
        if self._lines > _LINES_BEFORE_REWRITE and self._lines > 2 * live:
            self._current.clear()
            self._lines = live
        if self._revision or len(self._directories()) > 1:
            lines = [*lines, {"revision": self._revision + 1}]
        self._write_each(b"".join(map(_printed, lines)))
        self._revision = lines[-1].get("revision", 0)
        self._lines += len(lines)

    def _write_each(self, added: bytes) -> None:
        """Append lines to the newest copies, and rewrite all other copies. Raises OSError if every write fails."""
        places = self._directories()
        self._current &= set(places)
        written = set()
        failed: dict[Path, OSError] = {}
        for directory in places:
            try:
                self._write(directory / names.QUEUES, added, whole=directory not in self._current)
                written.add(directory)
            except OSError as error:
                failed[directory] = error
        if failed and not written:
            raise next(iter(failed.values()))
        self._current = written
        for directory, problem in failed.items():
            self._failed(directory, problem)

    def _write(self, path: Path, added: bytes, *, whole: bool) -> None:
        if whole:
            write_atomically(self._files, path, self._all_lines() + added)
        elif added:
            with closing(self._files.open(path, create=True)) as file:
                size = file.size()
                torn = size > 0 and file.pread(1, Position(size - 1)) != b"\n"
                file.append((b"\n" if torn else b"") + added)

    def _all_lines(self) -> bytes:
        lines: list[Mapping[str, Any]] = [
            {"group": group, "settings": settings} for group, settings in self.settings.items()
        ]
        lines += [_rejected_line(key, record) for key, record in self.rejected.items()]
        if self._revision:
            lines.append({"revision": self._revision})
        return b"".join(map(_printed, lines))


def _printed(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _key_fields(key: RejectedKey) -> dict[str, Any]:
    return {
        "group": key.group,
        "id": encode_id(key.topic_id),
        "partition": key.partition,
        "offset": key.offset,
    }


def _rejected_line(key: RejectedKey, record: RejectedRecord) -> dict[str, Any]:
    fields = {
        "topic": record.topic,
        "time": record.time,
        "by": record.by.value,
        "deliveries": record.deliveries,
        "holder": record.holder,
    }
    return {**_key_fields(key), **fields}
