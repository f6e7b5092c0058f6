"""The records that a member of a group gets: from an engine of this process, or through the mount of a daemon."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Protocol

from topicfs.api.cursor import Cursor, News
from topicfs.api.records import Record, with_place
from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import MemberPartitions, Position, Subscription
from topicfs.fusefs.forms.json_parser import parse_records
from topicfs.fusefs.groups.assigned_partitions import reset_offset
from topicfs.mounted import explained
from topicfs.paths import check_group_name
from topicfs.storage.config.group import MANUAL
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import GroupError, PartitionGoneError, SegmentDeletedError
from topicfs.storage.model import Isolation, Offset, TopicPartition

PATTERN_SIGNS = frozenset("*?[")
READ_BYTES = 512 * 1024


class _Reading(NamedTuple):
    """A partition that is read."""

    cursor: Cursor
    topic_id: str
    cancel: Cancel


class Given(NamedTuple):
    """Records of one partition, and the offset behind them."""

    partition: TopicPartition
    records: Sequence[Record]
    next_offset: int
    reading: _Reading | None = None
    """The reading that they are of; None for those of a mount, whose daemon knows what it gave."""


class Feed(Protocol):
    """A membership in a group, and its records."""

    def take(self, timeout: float | None) -> Given | None:
        """Return the records that come next; None if none comes for `timeout` seconds."""
        ...

    def commit(self, done: Mapping[TopicPartition, Given]) -> None:
        """Commit the positions behind what was given, but for partitions that went to others, and for deleted topics.

        They are in the log when this returns. Raises NotAssignedError, GroupError, OSError.
        """
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


def _reader() -> str:
    return f"{Path(sys.argv[0] or 'python').name} {os.getpid()}"


class EngineFeed:
    """A member of a group of an engine in this process, or of a cluster: joining starts a thread."""

    def __init__(self, engine: Engine, group: str, topics: Sequence[str], isolation: Isolation) -> None:
        """Join; the group gives out partitions later. Raises InvalidGroupError, ReadOnlyError."""
        self._engine, self._group, self._isolation = engine, group, isolation
        self._news = News(polls=False)
        self._readings: dict[TopicPartition, _Reading] = {}
        patterns = frozenset(one for one in topics if not PATTERN_SIGNS.isdisjoint(one))
        self._membership = engine.groups.join(
            group,
            Subscription(topics=frozenset(topics) - patterns, patterns=patterns),
            client_id=_reader().replace(" ", "-"),
            reader=_reader(),
            listener=self._news.signal,
        )

    def take(self, timeout: float | None) -> Given | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._news.begin()
            self._adopt()
            for partition, reading in list(self._readings.items()):
                records = self._next(reading.cursor)
                if records:
                    self._readings[partition] = self._readings.pop(
                        partition
                    )  # The others come first next time.
                    return Given(partition, records, reading.cursor.next_offset, reading)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._news.wait(left)

    def _next(self, cursor: Cursor) -> Sequence[Record]:
        try:
            try:
                return cursor.next()
            except SegmentDeletedError:  # As Kafka's consumers do, it goes on where `auto.offset.reset` says.
                cursor.go_to(self._reset(cursor))
                return cursor.next()
        except PartitionGoneError:
            return ()  # Its topic was deleted: soon the member does not hold it.

    def _reset(self, cursor: Cursor) -> Offset:
        reset = self._engine.groups.config(self._group).auto_offset_reset
        return reset_offset(cursor.source.partition, cursor.source, reset, system_clock())

    def _adopt(self) -> None:
        """Give back the partitions that others are to get, and take those that came."""
        held = self._membership.held()
        if held.lost is not None:
            raise held.lost.with_traceback(None)
        for partition, reading in list(self._readings.items()):
            if partition in held.wanted_back or not held.has(partition, reading.topic_id):
                self._drop(partition)
        if held.wanted_back:
            self._membership.give_up(held.wanted_back)
        for partition in sorted(held.partitions - held.wanted_back - self._readings.keys()):
            with suppress(PartitionGoneError):
                self._take_over(partition, held)

    def _take_over(self, partition: TopicPartition, held: MemberPartitions) -> None:
        topic = self._engine.topics().get(partition.topic)
        found = None if topic is None else topic.partitions().get(partition.partition)
        if topic is None or found is None or not held.has(partition, topic.topic_id):
            return  # It was deleted: soon the member does not hold it.
        committed = held.positions.get(partition)
        found.find_bounds()
        bounds = found.offsets()
        cursor = Cursor(found, bounds.log_start_offset, self._isolation)
        offset = None if committed is None else committed.offset
        if offset is None or not bounds.log_start_offset <= offset <= bounds.log_end_offset:
            offset = self._reset(cursor)
        cursor.go_to(offset)
        self._readings[partition] = _Reading(cursor, topic.topic_id, found.listen(self._news.signal))

    def _drop(self, partition: TopicPartition) -> None:
        self._readings.pop(partition).cancel()

    def commit(self, done: Mapping[TopicPartition, Given]) -> None:
        held = self._membership.held()
        positions = {
            one: Position(given.next_offset, _reader(), topic_id=reading.topic_id)
            for one, given in done.items()
            if (reading := given.reading) is not None
            and self._readings.get(one) is reading
            and held.has(one, reading.topic_id)
        }
        if positions:
            self._membership.commit(positions, at_once=True).result()

    def close(self) -> None:
        for partition in list(self._readings):
            self._drop(partition)
        self._membership.leave().result()


class MountFeed:
    """A member that an open file of a mount is: its group's `commit` is `manual`."""

    def __init__(self, mountpoint: Path, group: str, topics: Sequence[str]) -> None:
        """Join; a group that is new gets `commit=manual`. Raises GroupError, StorageError, OSError."""
        check_group_name(group)
        self._mountpoint = mountpoint
        self._name = f"@groups/{group}/{','.join(topics)}/log.json"
        self._waiting: list[Given] = []
        self._rest = b""
        _make_manual(mountpoint / "@groups" / group, group)
        with explained(mountpoint, self._name):
            self._file = os.open(mountpoint / self._name, os.O_RDWR | os.O_CLOEXEC)

    def take(self, timeout: float | None) -> Given | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._waiting:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            poll = select.poll()
            poll.register(self._file, select.POLLIN)
            if not poll.poll(None if left is None else left * 1000):
                return None
            with explained(self._mountpoint, self._name):
                data = os.read(self._file, READ_BYTES)
            lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
            self._waiting = list(_given(lines + newline)) if newline else []
        return self._waiting.pop(0)

    def commit(self, done: Mapping[TopicPartition, Given]) -> None:
        with explained(self._mountpoint, self._name):
            for partition, given in done.items():
                try:
                    os.write(self._file, f"commit {partition} {given.next_offset}\n".encode())
                except OSError as error:
                    if error.errno != errno.ESTALE:  # It went to another member, or its topic was deleted.
                        raise

    def close(self) -> None:
        os.close(self._file)


def _make_manual(directory: Path, group: str) -> None:
    config = directory / "config"
    try:
        directory.mkdir()
    except FileExistsError:
        if f"commit={MANUAL}" not in config.read_text(encoding="utf-8").splitlines():
            raise GroupError(
                f"{group}: reading through the mount moves its positions, and a program says itself what it has done; "
                f"set it first: echo commit={MANUAL} > {config}"
            ) from None
    else:
        config.write_text(f"commit={MANUAL}\n", encoding="utf-8")


def _given(lines: bytes) -> Sequence[Given]:
    """Return the records of lines of JSON, those of a partition that come one after the other together."""
    places = [json.loads(line) for line in lines.splitlines()]
    records = [
        with_place(record, place["topic"], place["partition"], place["offset"])
        for record, place in zip(parse_records(lines, -1), places, strict=True)
    ]
    found = []
    for partition, run in groupby(records, lambda one: TopicPartition(one.topic, one.partition)):
        together = list(run)
        found.append(Given(partition, together, together[-1].offset + 1))
    return found
