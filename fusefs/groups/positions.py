"""A group's position in a partition, as users write it: 42, +10, -10, earliest, latest, @2026-11-24T03:00:00Z."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from topicfs.fusefs.times import TimeError, parse_time
from topicfs.storage.engine import Partition
from topicfs.storage.errors import InvalidPositionError, UnknownTopicError
from topicfs.storage.model import Isolation, Offset, TopicPartition

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine
    from topicfs.coordination.membership import CommittedPosition, MemberDescription, Subscription

EARLIEST, LATEST = "earliest", "latest"

_OFFSET = re.compile(r"(?P<sign>[+-]?)(?P<number>[0-9]{1,18})")


def check_position(text: str) -> None:
    """Raise InvalidPositionError if `text` is not a position."""
    if text in (EARLIEST, LATEST) or _OFFSET.fullmatch(text):
        return
    if not text.startswith("@"):
        raise InvalidPositionError(
            f"{text}: a position is an offset, +N or -N from the present one, earliest, latest, or @TIME"
        )
    try:
        parse_time(text[1:])
    except TimeError as error:
        raise InvalidPositionError(f"{text}: {error}") from None


def find_position(
    text: str, partition: Partition, present: CommittedPosition | None, isolation: Isolation
) -> Offset:
    """Return the offset of `text`, clamped as Kafka's tool does. Raises InvalidPositionError, PartitionOfflineError."""
    check_position(text)
    partition.find_bounds()
    start_offset, end_offset = partition.log_start_offset, partition.visible_end(isolation)
    if text == EARLIEST:
        return start_offset
    if text == LATEST:
        return end_offset
    if text.startswith("@"):
        found = partition.offset_for_timestamp(parse_time(text[1:]), isolation=isolation)
        return end_offset if found is None else found.offset
    matched = _OFFSET.fullmatch(text)
    assert matched is not None
    offset = int(matched["number"])
    if matched["sign"]:
        if present is None:
            raise InvalidPositionError(
                f"{text}: the group has no position in {partition.topic}-{partition.number} to count from"
            )
        offset = present.offset + (offset if matched["sign"] == "+" else -offset)
    return Offset(min(max(offset, start_offset), end_offset))


def lag_of(partition: Partition, position: CommittedPosition | None) -> int | None:
    """Return the lag of `position` behind the last stable offset; None: unknown.

    If `position` is None, the lag is counted from the log start.
    """
    if partition.unknown is not None:
        return None
    bounds = partition.offsets()
    begin = bounds.log_start_offset if position is None else position.offset
    return max(bounds.last_stable_offset - begin, 0)  # A position may be newer than the last known end.


def lags(
    engine: Engine,
    positions: Mapping[TopicPartition, CommittedPosition],
    members: Iterable[MemberDescription] = (),
) -> Mapping[TopicPartition, int | None]:
    """Return a group's lag in each partition that has a position or a member; leaves out deleted partitions."""
    found: dict[TopicPartition, int | None] = {}
    for partition in sorted({*positions, *(one for member in members for one in member.partitions)}):
        try:
            found[partition] = lag_of(engine.partition(*partition), positions.get(partition))
        except UnknownTopicError:
            continue
    return found


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of `numbers`, such as lags; None if a number is unknown."""
    known = list(numbers)
    return None if None in known else sum(one for one in known if one is not None)


def spelled_lag(lag: int | None) -> str:
    """Return a lag as text: `-` if unknown."""
    return "-" if lag is None else str(lag)


def read_lag(text: str) -> int | None:
    """Parse the result of `spelled_lag`."""
    return None if text.strip() == "-" else int(text)


def wanted_partitions(engine: Engine, subscription: Subscription) -> dict[TopicPartition, str]:
    """Return the partitions of the subscribed topics, with the topic IDs."""
    return {
        TopicPartition(name, number): topic.topic_id
        for name, topic in engine.topics().items()
        if subscription.wants(name, internal=topic.internal)
        for number in topic.partitions()
    }
