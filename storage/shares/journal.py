"""`topicfs.queues`: the settings of share groups and the rejected records, for which Kafka's records have no place.

    {"group": "billing", "settings": {"share.delivery.count.limit": "3"}}
    {"group": "billing", "topic": "orders", "id": "…", "partition": 0, "offset": 42, "time": 1700000000000,
     "by": "limit", "deliveries": 5, "holder": "bash, process 4711"}
    {"group": "billing", "id": "…", "partition": 0, "offset": 42}                       forgotten

A line for each, as JSON; the last one about a thing counts, and a line that is cut off, as a crash leaves it, does not.
A broker passes the file over: it keeps its settings of groups elsewhere, and knows no dead letters. A rejected record
is written here before its state is kept, so that none is missing; whether it *is* rejected, its state says. The oldest
go where there are more than MOST_REJECTED, and the file is written again when most of it no longer counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from storage.checkpoints.atomic import write_atomically
from storage.checkpoints.identifiers import decode_id, encode_id
from storage.disk import names
from storage.disk.filesystem import FileSystem
from storage.model import Offset, Position, Timestamp
from storage.share_groups import RejectedBy

MOST_REJECTED = 10_000
_LINES_BEFORE_REWRITE = 1000


class RejectedKey(NamedTuple):
    """A record that was given up by a group."""

    group: str
    topic_id: uuid.UUID
    partition: int
    offset: Offset


class RejectedRecord(NamedTuple):
    """A record that was given up: why, by whom, and when."""

    topic: str
    time: Timestamp
    by: RejectedBy
    deliveries: int
    holder: str


class QueueJournal:
    """See the module. Calls come one at a time."""

    def __init__(self, files: FileSystem, directory: Path) -> None:
        """Read the file (blocking; OSError); what is no line of it is passed over."""
        self._files = files
        self._path = directory / names.QUEUES
        self.settings: dict[str, dict[str, str]] = {}
        """The overrides of groups that have any."""
        self.rejected: dict[RejectedKey, RejectedRecord] = {}
        """The oldest first."""
        self._lines = 0
        for line in self._read():
            self._replay(line)

    def _read(self) -> Iterator[Mapping[str, Any]]:
        if not self._files.exists(self._path):
            return
        for line in self._files.read_bytes(self._path).split(b"\n"):
            self._lines += 1
            with suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict) and isinstance(found.get("group"), str):
                    yield found

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

    # Changes: they are in the file when the call returns. OSError: nothing is changed.

    def set(self, group: str, settings: Mapping[str, str]) -> None:
        """Keep the overrides of a group."""
        self._append([{"group": group, "settings": dict(settings)}])
        self._put_settings(group, dict(settings))

    def reject(self, records: Mapping[RejectedKey, RejectedRecord]) -> None:
        """Keep what was given up."""
        self._append([_rejected_line(key, record) for key, record in records.items()])
        for key, record in records.items():
            self.rejected.pop(key, None)
            self.rejected[key] = record
        while len(self.rejected) > MOST_REJECTED:
            del self.rejected[next(iter(self.rejected))]

    def forget(self, keys: Sequence[RejectedKey]) -> None:
        """Forget records that were given up."""
        known = [key for key in keys if key in self.rejected]
        self._append([_key_fields(key) for key in known])
        for key in known:
            del self.rejected[key]

    def forget_group(self, group: str) -> None:
        """Forget all of a group."""
        self.forget([key for key in self.rejected if key.group == group])
        if group in self.settings:
            self.set(group, {})

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if not lines:
            return
        live = len(self.rejected) + len(self.settings)
        if self._lines > _LINES_BEFORE_REWRITE and self._lines > 2 * live:
            self._rewrite()
        with closing(self._files.open(self._path, create=True)) as file:
            size = file.size()
            torn = size > 0 and file.pread(1, Position(size - 1)) != b"\n"
            file.append((b"\n" if torn else b"") + b"".join(_printed(line) for line in lines))
        self._lines += len(lines)

    def _rewrite(self) -> None:
        lines = [{"group": group, "settings": settings} for group, settings in self.settings.items()]
        lines += [_rejected_line(key, record) for key, record in self.rejected.items()]
        write_atomically(self._files, self._path, b"".join(_printed(line) for line in lines))
        self._lines = len(lines)


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
