"""A group of readers, its members, and the records they get: from an engine of this process, or a daemon's mount."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import groupby
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from topicfs.api.bounds import level_of
from topicfs.api.cursor import Cursor, News
from topicfs.api.files import READ_ONLY, FileTopics
from topicfs.api.records import Record, with_place
from topicfs.api.topic import READ_COMMITTED
from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import MemberPartitions, Position, Subscription
from topicfs.fusefs.forms.json_parser import parse_records
from topicfs.fusefs.groups.assigned_partitions import reset_offset
from topicfs.mounted import explained
from topicfs.paths import check_group_name
from topicfs.storage.config.group import MANUAL
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import (
    GroupError,
    GroupsUnsupportedError,
    PartitionGoneError,
    ReadOnlyError,
    SegmentDeletedError,
    UnknownTopicError,
)
from topicfs.storage.messages import which_topic
from topicfs.storage.model import Isolation, Offset, TopicPartition

if TYPE_CHECKING:
    from topicfs.groups.view import GroupsPlace

PATTERN_SIGNS = frozenset("*?[")
READ_BYTES = 512 * 1024


class _Reading(NamedTuple):
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

    def commit(self, done: Mapping[TopicPartition, Given]) -> None:
        """Commit the positions behind what was given, but for partitions that went to others, and for deleted topics.

        They are in the log when this returns. Raises NotAssignedError, GroupError, OSError.
        """

    def close(self) -> None:
        """Leave the group."""


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


class Group:
    """A group of readers: it has one position in each partition, kept as Kafka keeps it."""

    def __init__(
        self,
        name: str,
        engine: Engine | FileTopics,
        opened: Callable[[], AbstractContextManager[GroupsPlace]],
    ) -> None:
        """Name a group of the engine; `opened` returns the place of its positions."""
        self.name = name
        self._engine = engine
        self._opened = opened

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    def join(self, *topics: str, isolation: str = READ_COMMITTED, timeout: float | None = None) -> Member:
        """Become a member that reads these topics, or all that a pattern such as `order*` names; a thread is started.

        The partitions are divided among all members, also those of other programs. Without a position a member begins by the
        group's `auto.offset.reset`. The iteration ends if no record comes for `timeout` seconds. Raises GroupError,
        ReadOnlyError, OSError.
        """
        if not topics:
            raise ValueError(f"{self.name}: name the topics to read")
        if not all(isinstance(topic, str) for topic in topics):
            raise TypeError(f"{self.name}: each topic is one argument, as in join('orders', 'clicks')")
        level, engine = level_of(isolation), self._engine
        present = topics if engine.remote else engine.topics()  # Only a directory knows all its topics.
        for name in topics:
            if PATTERN_SIGNS.isdisjoint(name) and name not in present:
                raise UnknownTopicError(f"{UnknownTopicError.of(name)}{which_topic(name, present)}")
        if not isinstance(engine, FileTopics):
            return Member(self, EngineFeed(engine, self.name, topics, level), timeout)
        if engine.mountpoint is None:
            raise ReadOnlyError(f"{self.name}: a group stores positions, and {READ_ONLY}")
        if level is not Isolation.READ_COMMITTED:
            raise GroupsUnsupportedError(
                f"{self.name}: through a mount its own isolation holds: topicfs mount --isolation"
            )
        return Member(self, MountFeed(engine.mountpoint, self.name, topics), timeout)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition in which the group has a position (UnknownGroupError)."""
        with self._opened() as place:
            return {**place.describe(self.name).positions}

    def set_positions(self, positions: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> None:
        """Set positions of a group that has no members; it is made if there is none (GroupNotEmptyError)."""
        try:
            wanted = {
                TopicPartition(topic, index(number)): Offset(index(offset))
                for (topic, number), offset in positions.items()
            }
        except (TypeError, ValueError):
            raise TypeError(f"{positions!r}: write positions as {{('orders', 0): 42}}") from None
        with self._opened() as place:
            place.set_positions(self.name, wanted)

    def delete(self) -> None:
        """Delete the group with its positions (UnknownGroupError, GroupNotEmptyError)."""
        with self._opened() as place:
            place.delete(self.name)


class Member:
    """A member of a group. One caller at a time."""

    def __init__(self, group: Group, feed: Feed, timeout: float | None) -> None:
        self._group = group
        """Held because it keeps the topics open."""
        self._feed = feed
        self._timeout = timeout
        self._done: dict[TopicPartition, Given] = {}
        """What the caller was given last, by partition."""

    def __repr__(self) -> str:
        return f"<Member of {self._group.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        """Yield records as they come; partitions that others are to get are given back between two of them."""
        while (given := self._feed.take(self._timeout)) is not None:
            for record in given.records:
                self._done[given.partition] = given._replace(next_offset=record.offset + 1)
                yield record
            self._done[given.partition] = given

    def poll(self, timeout: float | None = None) -> list[Record]:
        """Return the records that come next, some of one partition; none if none comes for `timeout` seconds."""
        given: Given | None = self._feed.take(timeout)
        if given is None:
            return []
        self._done[given.partition] = given
        return list(given.records)

    def commit(self) -> None:
        """Commit the position behind every record that this member was given so far; it is in the log when this returns.

        Partitions that went to others meanwhile are left out: their new readers get what was not committed again.
        """
        self._feed.commit(self._done)
        self._done.clear()

    def close(self) -> None:
        """Leave the group. What was not committed is given to other members, or to the next one."""
        self._feed.close()
