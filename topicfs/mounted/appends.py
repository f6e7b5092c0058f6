"""Appends through a mount: the lines themselves, or batches that the command encoded."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

from topicfs.mounted.reasons import explained
from topicfs.storage.codec.batch import scan
from topicfs.storage.engine import Partition, Topic

BATCH_FILE = "log.batch"
REQUEST_BYTES = 31 * 4096
"""Largest write that every kernel passes on as one request: one of at most 32 pages, and it may begin within a page."""


class MountedTopic:
    """A topic as the directory's files show it; what is appended to its partitions goes through the mount."""

    def __init__(self, topic: Topic, mountpoint: Path, files: ExitStack) -> None:
        """Take the topic; `files` closes what is opened."""
        self._topic = topic
        self._partitions = {
            number: cast("Partition", _MountedPartition(one, mountpoint, files))
            for number, one in topic.partitions().items()
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)

    def partitions(self) -> Mapping[int, Partition]:
        return self._partitions


class _MountedPartition:
    def __init__(self, partition: Partition, mountpoint: Path, files: ExitStack) -> None:
        self._partition, self._mountpoint, self._files = partition, mountpoint, files
        self._name = f"{partition.topic}/{partition.number}/{BATCH_FILE}"
        self._file: IO[bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def append(self, batches: bytearray, **_options: bool) -> None:
        if self._file is None:
            self._file = self._files.enter_context((self._mountpoint / self._name).open("ab", buffering=0))
        for group in batch_groups(batches):
            with explained(self._mountpoint, self._name):
                write(self._file, group)

    def sync(self) -> None:
        if self._file is not None:
            with explained(self._mountpoint, self._name):
                os.fsync(self._file.fileno())


def write(file: IO[bytes], data: bytes) -> None:
    """Write all of it, in requests that reach the daemon as they are."""
    view, start = memoryview(data), 0
    while start < len(view):
        start += file.write(view[start : start + REQUEST_BYTES])


def line_groups(block: bytes) -> Iterator[bytes]:
    """Yield a block in writes that reach a daemon as one request each, and end with a line unless it is longer.

    A daemon takes the begun line of a program that is killed for a record.
    """
    start = 0
    while start < len(block):
        end = block.rfind(b"\n", start, start + REQUEST_BYTES) + 1 or start + REQUEST_BYTES
        yield block[start:end]
        start = end


def batch_groups(block: bytes | bytearray) -> Iterator[bytes]:
    """Yield whole batches, as many as fit into one request; a larger batch by itself."""
    start = 0
    for batch in scan(block):
        if batch.end_position - start > REQUEST_BYTES and batch.position > start:
            yield bytes(block[start : batch.position])
            start = batch.position
    yield bytes(block[start:])


def end_offsets(topic: Path, topic_id: str, partition: int | None) -> int:
    """Return the end of a mounted topic's partition, or the sum of all ends. Raises OSError, also for a new topic of that name."""
    if status_of(topic)["topic_id"] != topic_id:
        raise FileNotFoundError(errno.ENOENT, "the topic was deleted", topic.name)
    numbers = (
        [one for one in topic.iterdir() if one.name.isdecimal()]
        if partition is None
        else [topic / str(partition)]
    )
    return sum(int(status_of(one)["log_end_offset"]) for one in numbers)


def status_of(partition: Path) -> dict[str, str]:
    """Read the `status` of a mounted topic or partition (OSError)."""
    lines = (line.partition(" ") for line in (partition / "status").read_text().splitlines())
    return {name: value for name, _, value in lines}
