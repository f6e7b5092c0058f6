"""Appends, creates and deletes topics through the mount of the daemon that owns the directory."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from topicfs.fusefs.forms import FormError
from topicfs.fusefs.times import written
from topicfs.storage import errors
from topicfs.storage.checkpoints.partition_metadata import topic_id_of
from topicfs.storage.codec.batch import scan
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import check_partitions
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.engine import Partition, Topic
from topicfs.storage.idempotence.registry import InputProgress, ProducerRegistry, entry_line
from topicfs.storage.model import ONLINE, Offset, PartitionOffsets


@contextmanager
def explained(mountpoint: Path, name: str) -> Iterator[None]:
    """If the block raises an error about the path `name`, raise the reason in the mount's `@status` instead.

    The newest reason for the path is used, if it is not older than the block. If the reason names a line of the
    write, raises FormError. If another program causes an error at the same path, its reason may be used by mistake.
    """
    began = written(system_clock())
    try:
        yield
    except OSError as error:
        text = ""
        with suppress(OSError):
            text = (mountpoint / "@status").read_text(encoding="utf-8")
        line = rf"(?m)^(\S+) error {re.escape(name)}: (?:line (\d+): )?(.*?)(?: \(\d+ times\))?$"
        told = [one.groups() for one in re.finditer(line, text) if one[1] >= began]
        if not told:
            raise
        _, number, reason = told[-1]
        raise (FormError(int(number), reason) if number else errors.StorageError(reason)) from error


BATCH_FILE, PRODUCERS = "log.batch", "@producers"
REQUEST_BYTES = 31 * 4096
"""Largest write that every kernel sends as one request.

A request has at most 32 pages, and the data may begin within a page.
"""


class MountedTopic:
    """A topic as the directory's files show it; appends to its partitions go through the mount."""

    def __init__(self, topic: Topic, mountpoint: Path, files: ExitStack) -> None:
        self._topic = topic
        self._partitions = {
            number: cast("Partition", MountedPartition(one, topic.topic_id, mountpoint, files))
            for number, one in topic.partitions().items()
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)

    def partitions(self) -> Mapping[int, Partition]:
        return self._partitions


class MountedPartition:
    """A partition as the directory's files show it; appends go through the mount."""

    def __init__(self, partition: Partition, topic_id: str, mountpoint: Path, files: ExitStack) -> None:
        """Wrap `partition` of the topic with ID `topic_id`; `files` closes the opened files."""
        self._partition, self._mountpoint, self._files = partition, mountpoint, files
        self._topic_id = topic_id
        self._name = f"{partition.topic}/{partition.number}/{BATCH_FILE}"
        self._file: IO[bytes] | None = None
        self._writing = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def append(self, batches: bytearray, *, durable: bool = False, encoded_here: bool = False) -> None:
        del encoded_here  # Ignored: the daemon checks all data that comes through a file.
        with self._writing:
            try:
                self._file = self._file or self._open()
                for group in batch_groups(batches):
                    with explained(self._mountpoint, self._name):
                        write(self._file, group)
            except BaseException:
                # The next append opens the file again, because the daemon accepts nothing after a refused batch.
                with suppress(OSError):
                    self._close()
                raise
        if durable:
            self.sync()

    def _open(self) -> IO[bytes]:
        """Open the partition's file. Raises PartitionGoneError if a new topic has taken the name."""
        file = (self._mountpoint / self._name).open("ab", buffering=0)
        folder = self._partition.directory
        if folder is not None and topic_id_of(folder, NativeFileSystem(read_only=True)) != self._topic_id:
            file.close()
            raise errors.PartitionGoneError(
                f"{self._partition.topic}-{self._partition.number}: its topic was deleted"
            )
        self._files.callback(self._close)
        return file

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def offsets(self) -> PartitionOffsets:
        """Return the offsets when the directory was opened. After an append, the log end is the daemon's."""
        opened = self._partition.offsets()
        if self._file is None:
            return opened
        end = status_of((self._mountpoint / self._name).parent)["log_end_offset"]
        return opened._replace(log_end_offset=Offset(int(end)))

    def sync(self) -> None:
        if self._file is not None:
            with explained(self._mountpoint, self._name):
                os.fsync(self._file.fileno())


class MountedProducers(ProducerRegistry):
    """The named producers as the directory's files show them; changes go through the mount."""

    def __init__(self, directories: Sequence[Path], mountpoint: Path) -> None:
        super().__init__(NativeFileSystem(read_only=True), lambda: directories)
        self._mountpoint = mountpoint

    def put(self, name: str, source: str, progress: InputProgress) -> None:
        with (
            explained(self._mountpoint, PRODUCERS),
            (self._mountpoint / PRODUCERS).open("ab", buffering=0) as file,
        ):
            write(file, entry_line(name, source, progress))


@contextmanager
def only_run(mountpoint: Path, topic: str, partition: int | None) -> Iterator[None]:
    """Wait until other runs of named producers through the mount have ended. Their appends are then on disk.

    During the block, other runs wait for this one.
    """
    with ExitStack() as files:
        held = os.open(mountpoint, os.O_RDONLY)
        files.callback(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            for one in _partitions(mountpoint / topic, partition):
                with (one / BATCH_FILE).open("ab", buffering=0) as file:
                    os.fsync(file.fileno())
        yield


def write(file: IO[bytes], data: bytes) -> None:
    """Write all of `data`, in writes that reach the daemon as single requests."""
    view, start = memoryview(data), 0
    while start < len(view):
        start += file.write(view[start : start + REQUEST_BYTES])


def line_groups(block: bytes) -> Iterator[bytes]:
    """Split a block into writes that each fit into one request.

    A write ends at a line end if possible, so that a kill rarely splits a line.
    """
    start = 0
    while start < len(block):
        end = block.rfind(b"\n", start, start + REQUEST_BYTES) + 1 or start + REQUEST_BYTES
        yield block[start:end]
        start = end


def batch_groups(block: bytes | bytearray) -> Iterator[bytes]:
    """Split a block into writes of whole batches, as many batches per request as fit.

    A batch that is larger than a request is a write of its own.
    """
    start = 0
    for batch in scan(block):
        if batch.end_position - start > REQUEST_BYTES and batch.position > start:
            yield bytes(block[start : batch.position])
            start = batch.position
    yield bytes(block[start:])


def end_offsets(topic: Path, topic_id: str, partition: int | None) -> int:
    """Return the end offset of a mounted partition; if `partition` is None, the sum over all partitions.

    Raises OSError, also if another topic has taken the name.
    """
    if status_of(topic)["topic_id"] != topic_id:
        raise FileNotFoundError(errno.ENOENT, "the topic was deleted", topic.name)
    return sum(int(status_of(one)["log_end_offset"]) for one in _partitions(topic, partition))


def _partitions(topic: Path, partition: int | None) -> list[Path]:
    numbers = numbers_of(topic) if partition is None else [partition]
    return [topic / str(number) for number in numbers]


def numbers_of(topic: Path) -> list[int]:
    """Return the numbers of a mounted topic's partitions. Raises OSError."""
    return sorted(int(entry.name) for entry in topic.iterdir() if entry.name.isdecimal())


def status_of(partition: Path) -> dict[str, str]:
    """Parse the `status` of a mounted topic or partition. Raises OSError."""
    lines = (line.partition(" ") for line in (partition / "status").read_text().splitlines())
    return {name: value for name, _, value in lines}


def create_topic(
    mountpoint: Path, name: str, *, partitions: int | None, replicas: int | None, overrides: Mapping[str, str]
) -> None:
    """Create a topic with a valid name. If its partitions or settings are refused, delete the topic again."""
    TopicConfig.from_overrides(overrides)
    if partitions is not None:
        check_partitions(partitions)
    topic = mountpoint / name
    with explained(mountpoint, name):
        topic.mkdir()
    if not (topic / "config").exists():
        topic.rmdir()
        raise errors.StorageError(f"{mountpoint}: its mount has ended; run the command again")
    with ExitStack() as undo:
        undo.callback(_remove, mountpoint, name)
        if partitions is not None:
            with explained(mountpoint, f"{name}/{partitions - 1}"):
                (topic / str(partitions - 1)).mkdir(exist_ok=True)
        settings = "".join(f"{key}={value}\n" for key, value in overrides.items())
        for file, text in (("config", settings), ("replicas", f"{replicas}\n" if replicas else "")):
            if text:
                with explained(mountpoint, f"{name}/{file}"):
                    (topic / file).write_text(text, encoding="utf-8")
        count = len(numbers_of(topic))
        if partitions not in (None, count):
            raise errors.StorageError(
                f"{name}: the daemon creates at least {count} partitions (num.partitions)"
            )
        undo.pop_all()


def _remove(mountpoint: Path, name: str) -> None:
    """Remove a new topic if nothing was appended to it."""
    with suppress(errors.StorageError, OSError):
        delete_topic(mountpoint, name, with_records=False)


def delete_topic(mountpoint: Path, name: str, *, with_records: bool) -> None:
    """Delete a topic. A topic with records is deleted only if `with_records`; otherwise raises TopicNotEmptyError.

    Raises StorageError, OSError.
    """
    topic = mountpoint / name
    if not (topic / "config").exists():
        raise errors.UnknownTopicError.of(name)
    if not with_records:
        _check_empty(topic)
    with explained(mountpoint, name):
        topic.rmdir()


def _check_empty(topic: Path) -> None:
    """Raise TopicNotEmptyError if a topic has records, PartitionOfflineError if an offline partition may have some."""
    records = 0
    for number in numbers_of(topic):
        status = status_of(topic / str(number))
        if status["state"] != ONLINE:
            raise errors.PartitionOfflineError(f"{topic.name}/{number}: {status['state']}")
        records += int(status["log_end_offset"]) - int(status["log_start_offset"])
    if records:
        raise errors.TopicNotEmptyError(topic.name, records)
