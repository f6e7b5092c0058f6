"""A group of readers, its members, and the records that they get, from an engine in this process or from a mount."""

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
from topicfs.storage import errors
from topicfs.storage.config.group import MANUAL
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import Cancel
from topicfs.storage.messages import which_topic
from topicfs.storage.model import Isolation, Offset, TopicPartition

if TYPE_CHECKING:
    from topicfs.groups.view import GroupAdmin

PATTERN_SIGNS = frozenset("*?[")
GROUP_READ_BYTES = 512 * 1024


class _Reading(NamedTuple):
    cursor: Cursor
    topic_id: str
    cancel: Cancel


class Given(NamedTuple):
    """Records of one partition, and the offset that follows them."""

    partition: TopicPartition
    records: Sequence[Record]
    next_offset: int
    reading: _Reading | None = None
    """The `_Reading` that returned the records; None for records from a mount, whose daemon tracks what was read."""


class Feed(Protocol):
    """The membership in a group, and the source of the member's records."""

    def take(self, timeout: float | None) -> Given | None:
        """Return the next records; None if no record arrives for `timeout` seconds."""

    def commit(self, done: Mapping[TopicPartition, Given]) -> None:
        """Commit the positions after the records in `done`, except in revoked partitions and deleted topics.

        The positions are in the log when the call returns. Raises NotAssignedError, GroupError, OSError.
        """

    def close(self) -> None:
        """Leave the group."""


def _reader() -> str:
    return f"{Path(sys.argv[0] or 'python').name} {os.getpid()}"


class EngineFeed:
    """A member of a group of an engine in this process, or of a cluster. Joining starts a thread."""

    def __init__(self, engine: Engine, group: str, topics: Sequence[str], isolation: Isolation) -> None:
        """Join; the group assigns partitions later. Raises InvalidGroupError, ReadOnlyError."""
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
                    )  # Put this partition last, so that the other partitions come first next time.
                    return Given(partition, records, reading.cursor.next_offset, reading)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._news.wait(left)

    def _next(self, cursor: Cursor) -> Sequence[Record]:
        try:
            try:
                return cursor.next()
            except (
                errors.SegmentDeletedError
            ):  # As in Kafka's consumers, `auto.offset.reset` decides where to continue.
                cursor.go_to(self._reset(cursor))
                return cursor.next()
        except errors.PartitionGoneError:
            return ()  # The partition's topic was deleted, so the member will lose the partition soon.

    def _reset(self, cursor: Cursor) -> Offset:
        reset = self._engine.groups.config(self._group).auto_offset_reset
        return reset_offset(cursor.source.partition, cursor.source, reset, system_clock())

    def _adopt(self) -> None:
        """Give up revoked partitions, and start reading newly assigned partitions."""
        held = self._membership.held()
        if held.lost is not None:
            raise held.lost.with_traceback(None)
        for partition, reading in list(self._readings.items()):
            if partition in held.wanted_back or not held.has(partition, reading.topic_id):
                self._drop(partition)
        if held.wanted_back:
            self._membership.give_up(held.wanted_back)
        for partition in sorted(held.partitions - held.wanted_back - self._readings.keys()):
            with suppress(errors.PartitionGoneError):
                self._take_over(partition, held)

    def _take_over(self, partition: TopicPartition, held: MemberPartitions) -> None:
        topic = self._engine.topics().get(partition.topic)
        found = None if topic is None else topic.partitions().get(partition.partition)
        if topic is None or found is None or not held.has(partition, topic.topic_id):
            return  # The partition was deleted, so the member will lose it soon.
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
    """A group member that reads through an open file of a mount. Its group has `commit=manual`."""

    def __init__(self, mountpoint: Path, group: str, topics: Sequence[str]) -> None:
        """Join; a new group gets `commit=manual`. Raises GroupError, StorageError, OSError."""
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
                data = os.read(self._file, GROUP_READ_BYTES)
            lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
            self._waiting = list(_given(lines + newline)) if newline else []
        return self._waiting.pop(0)

    def commit(self, done: Mapping[TopicPartition, Given]) -> None:
        with explained(self._mountpoint, self._name):
            for partition, given in done.items():
                try:
                    os.write(self._file, f"commit {partition} {given.next_offset}\n".encode())
                except OSError as error:
                    if error.errno != errno.ESTALE:  # Another member has the partition, or it was deleted.
                        raise

    def close(self) -> None:
        os.close(self._file)


def _make_manual(directory: Path, group: str) -> None:
    config = directory / "config"
    try:
        directory.mkdir()
    except FileExistsError:
        if f"commit={MANUAL}" not in config.read_text(encoding="utf-8").splitlines():
            raise errors.GroupError(
                f"{group}: a program commits by itself, but reading through the mount commits automatically; "
                f"first run: echo commit={MANUAL} > {config}"
            ) from None
    else:
        config.write_text(f"commit={MANUAL}\n", encoding="utf-8")


def _given(lines: bytes) -> Sequence[Given]:
    """Parse records from lines of JSON; adjacent records of a partition are grouped."""
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
    """A group of readers. It has a position in each partition, stored as Kafka stores positions."""

    def __init__(
        self, name: str, engine: Engine | FileTopics, opened: Callable[[], AbstractContextManager[GroupAdmin]]
    ) -> None:
        """`opened` opens the object that reads and changes the group."""
        self.name = name
        self._engine = engine
        self._opened = opened

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    def join(self, *topics: str, isolation: str = READ_COMMITTED, timeout: float | None = None) -> Member:
        """Become a member that reads these topics, or all that match a pattern such as `order*`; starts a thread.

        The partitions are divided among all members, including those of other programs. If the group has no position
        in a partition, the member begins as the group's `auto.offset.reset` says. Iteration ends if no record arrives
        for `timeout` seconds. Raises GroupError, ReadOnlyError, OSError.
        """
        if not topics:
            raise ValueError(f"{self.name}: give the topics to read")
        if not all(isinstance(topic, str) for topic in topics):
            raise TypeError(f"{self.name}: each topic is one argument, as in join('orders', 'clicks')")
        level, engine = level_of(isolation), self._engine
        present = (
            topics if engine.remote else engine.topics()
        )  # Only the engine of a directory knows all topics.
        for name in topics:
            if PATTERN_SIGNS.isdisjoint(name) and name not in present:
                raise errors.UnknownTopicError(
                    f"{errors.UnknownTopicError.of(name)}{which_topic(name, present)}"
                )
        if not isinstance(engine, FileTopics):
            return Member(self, EngineFeed(engine, self.name, topics, level), timeout)
        if engine.mountpoint is None:
            raise errors.ReadOnlyError(f"{self.name}: joining stores positions, but {READ_ONLY}")
        if level is not Isolation.READ_COMMITTED:
            raise errors.GroupsUnsupportedError(
                f"{self.name}: the mount's isolation applies here: topicfs mount --isolation"
            )
        return Member(self, MountFeed(engine.mountpoint, self.name, topics), timeout)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the group's position, the offset of the next record, in each partition. Raises UnknownGroupError."""
        with self._opened() as groups:
            return {**groups.describe(self.name).positions}

    def set_positions(self, positions: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> None:
        """Set positions of a group without members, creating the group if necessary. Raises GroupNotEmptyError."""
        try:
            wanted = {
                TopicPartition(topic, index(number)): Offset(index(offset))
                for (topic, number), offset in positions.items()
            }
        except (TypeError, ValueError):
            raise TypeError(f"{positions!r}: write positions as {{('orders', 0): 42}}") from None
        with self._opened() as groups:
            groups.set_positions(self.name, wanted)

    def delete(self) -> None:
        """Delete the group with its positions. Raises UnknownGroupError, GroupNotEmptyError."""
        with self._opened() as groups:
            groups.delete(self.name)


class Member:
    """A member of a group. Not thread-safe."""

    def __init__(self, group: Group, feed: Feed, timeout: float | None) -> None:
        self._group = group
        """Held so that the group's topics stay open while this member exists."""
        self._feed = feed
        self._timeout = timeout
        self._done: dict[TopicPartition, Given] = {}
        """The last records that were returned from each partition."""

    def __repr__(self) -> str:
        return f"<Member of {self._group.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        """Yield records as they arrive; revoked partitions are given up between two records."""
        while (given := self._feed.take(self._timeout)) is not None:
            for record in given.records:
                self._done[given.partition] = given._replace(next_offset=record.offset + 1)
                yield record
            self._done[given.partition] = given

    def poll(self, timeout: float | None = None) -> list[Record]:
        """Return the next records, all of one partition; empty if no record arrives for `timeout` seconds."""
        given: Given | None = self._feed.take(timeout)
        if given is None:
            return []
        self._done[given.partition] = given
        return list(given.records)

    def commit(self) -> None:
        """Commit the positions that follow all records returned so far. They are in the log when the call returns.

        Partitions that other members got meanwhile are left out. Those members get uncommitted records again.
        """
        self._feed.commit(self._done)
        self._done.clear()

    def close(self) -> None:
        """Leave the group. Records that were not committed are delivered to other members, or to later members."""
        self._feed.close()
