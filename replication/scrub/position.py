"""The position of the scrub of a data directory: a small file, so that one that was interrupted goes on where it was.

    topicfs.scrub:  {"version": 1, "began": 1764086400000, "ended": null, "partition": "orders-0", "offset": 1048576,
                     "whole": true, "damaged": 0, "topic_id": "Fz8Xk0ZNTpWqC8yQWm1Q3A"}

`partition` and `offset` say the segment that is scrubbed next, of the topic `topic_id`; `began` is when this scrub began, `ended` when it was through.
`whole` says that it passes nothing over, as the duty does; `damaged` counts what it left as it was.
A broker passes the file over. It may be lost: then the next scrub begins at the front.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import TopicPartition

VERSION = 1


class ScrubPosition(NamedTuple):
    """The place where a scrub stands."""

    began: int
    """Time in milliseconds since the epoch; likewise `ended`."""
    ended: int | None = None
    """None while it goes on."""
    partition: str = ""
    """`<topic>-<number>`; empty: the first one."""
    offset: int = 0
    """Base offset of the segment that is next."""
    whole: bool = False
    """True if no partition was passed over."""
    damaged: int = 0
    """Findings that could not be healed so far; those in the segment that is next may be found, and counted, again."""
    topic_id: str | None = None
    """Id of the partition's topic: one of the same name that was created since is scrubbed from its front."""

    def skips(self, partition: TopicPartition) -> bool:
        """Return whether the scrub has been through a partition: they are taken in the order of their names."""
        return str(partition) < self.partition

    def start_in(self, partition: TopicPartition, topic_id: str | None) -> int:
        """Return the offset from which on a partition of a topic is scrubbed."""
        return self.offset if (str(partition), topic_id) == (self.partition, self.topic_id) else 0


def read_position(files: FileSystem, directory: Path) -> ScrubPosition | None:
    """Return what the file of a data directory says; None where there is none, or where it says nothing of sense (OSError)."""
    path = directory / names.SCRUB
    if not files.exists(path):
        return None
    try:
        plain = json.loads(files.read_bytes(path))
        return _position(plain) if plain["version"] == VERSION else None
    except (CorruptionError, ValueError, KeyError, TypeError):
        return None


def write_position(files: FileSystem, directory: Path, position: ScrubPosition) -> None:
    """Put it into a data directory (OSError; blocking)."""
    plain = {"version": VERSION, **position._asdict()}
    write_atomically(files, directory / names.SCRUB, json.dumps(plain).encode() + b"\n")


def _position(plain: dict[str, Any]) -> ScrubPosition:
    ended = plain["ended"]
    return ScrubPosition(
        began=int(plain["began"]),
        ended=None if ended is None else int(ended),
        partition=str(plain["partition"]),
        offset=max(int(plain["offset"]), 0),
        whole=bool(plain.get("whole", False)),
        damaged=int(plain.get("damaged", 0)),
        topic_id=plain.get("topic_id"),
    )
