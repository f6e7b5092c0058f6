"""The ways to reset positions, with the names of kafka-consumer-groups. Each way computes an offset in a partition."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TypeAlias

from topicfs.fusefs.times import TimeError, parse_time
from topicfs.groups.view import GroupAdmin, PositionBounds
from topicfs.storage.config.group import OffsetResetChoice
from topicfs.storage.errors import InvalidPositionError, UnknownTopicError
from topicfs.storage.model import Offset, Timestamp, TopicPartition

_NUMBER = re.compile("[0-9]{1,19}")
"""Matches numbers of up to about 64 bits."""
Scenario: TypeAlias = Callable[[GroupAdmin, TopicPartition, Offset | None], Offset | None]
"""Computes a partition's new offset (None: no change) from the group's present offset (None: no position)."""


def to_earliest(groups: GroupAdmin, partition: TopicPartition, present: Offset | None) -> Offset:
    del present
    return groups.bounds(partition).start_offset


def to_latest(groups: GroupAdmin, partition: TopicPartition, present: Offset | None) -> Offset:
    del present
    return groups.bounds(partition).end_offset


def to_current(groups: GroupAdmin, partition: TopicPartition, present: Offset | None) -> Offset | None:
    """Keep the position, clamped to the log."""
    return None if present is None else within(present, groups.bounds(partition))


def to_offset(offset: int) -> Scenario:
    """Go to an offset, clamped to the log."""
    return lambda groups, partition, _present: within(offset, groups.bounds(partition))


def shift_by(count: int) -> Scenario:
    """Move the position forward or, if `count` is negative, back."""

    def shifted(groups: GroupAdmin, partition: TopicPartition, present: Offset | None) -> Offset:
        if present is None:
            raise InvalidPositionError(f"{partition}: the group has no position there to count from")
        return within(present + count, groups.bounds(partition))

    return shifted


def to_time(timestamp: Timestamp) -> Scenario:
    """Go to the first record at or after a time; if there is none, to the end."""
    timestamp = max(Timestamp(0), timestamp)  # A query for a time before 1970 is not possible.

    def at(groups: GroupAdmin, partition: TopicPartition, present: Offset | None) -> Offset:
        del present
        found = groups.offset_at(partition, timestamp)
        return groups.bounds(partition).end_offset if found is None else found

    return at


def parse_datetime(text: str) -> Timestamp:
    """Parse a time as selectors or Kafka's tool write it; without a zone, it is UTC. Raises InvalidPositionError."""
    try:
        return parse_time(text)
    except TimeError:
        try:
            return parse_time(f"{text}Z")
        except TimeError:
            raise InvalidPositionError(f"{text}: write a time as 2026-11-24T03:00:00.000Z") from None


def parse_duration(text: str) -> int:
    """Parse `P1D` or `PT6H` to milliseconds. Raises InvalidPositionError."""
    try:
        return OffsetResetChoice().parse(f"by_duration:{text}").milliseconds
    except ValueError:
        raise InvalidPositionError(f"{text}: write a duration as P1D or PT6H30M") from None


def within(offset: int, bounds: PositionBounds) -> Offset:
    """Return an offset clamped to the log, as Kafka's tool does."""
    return Offset(min(max(offset, bounds.start_offset), bounds.end_offset))


@dataclass(frozen=True, slots=True)
class Reset:
    partition: TopicPartition
    before: Offset | None
    offset: Offset


def plan(
    groups: GroupAdmin,
    scenario: Scenario,
    partitions: Sequence[TopicPartition],
    present: Mapping[TopicPartition, Offset],
) -> list[Reset]:
    """Compute each partition's new position. Raises InvalidPositionError, UnknownTopicError."""
    found = []
    for partition in partitions:
        offset = scenario(groups, partition, present.get(partition))
        if offset is not None:
            found.append(Reset(partition, present.get(partition), offset))
    return found


def parse_topics(groups: GroupAdmin, texts: Sequence[str]) -> list[TopicPartition]:
    """Parse `orders` or `orders:0,2`. Raises UnknownTopicError, InvalidPositionError."""
    partitions = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        there = groups.partitions(topic)
        wanted = there if not colon else [_number(text, one) for one in numbers.split(",")]
        for number in wanted:
            if number not in there:
                raise UnknownTopicError.of_partition(topic, number, there)
            partitions.append(TopicPartition(topic, number))
    return partitions


def _number(text: str, number: str) -> int:
    if not _NUMBER.fullmatch(number):
        raise InvalidPositionError(f"{text}: partitions are numbers, as in orders:0,2")
    return int(number)


def export(resets: Sequence[Reset]) -> str:
    """Return positions in the format that Kafka's tool exports and imports: topic,partition,offset."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((*reset.partition, reset.offset) for reset in resets)
    return text.getvalue()


def parse_export(text: str) -> dict[TopicPartition, int]:
    """Parse text that `export` returned. Raises InvalidPositionError."""
    found = {}
    for number, row in enumerate(csv.reader(StringIO(text)), 1):
        if not row:
            continue
        if len(row) != 3 or not (_NUMBER.fullmatch(row[1]) and _NUMBER.fullmatch(row[2])):
            raise InvalidPositionError(f"line {number}: must be topic,partition,offset")
        found[TopicPartition(row[0], int(row[1]))] = int(row[2])
    return found
