"""The starting and ending offsets of a query's partitions."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from topicfs.pipeline.errors import DataLossError, InvalidOptionError, PipelineError
from topicfs.pipeline.source.query import offsets
from topicfs.pipeline.source.query.options import Selection
from topicfs.pipeline.source.query.ranges import OffsetRange
from topicfs.storage.disk.names import is_internal
from topicfs.storage.errors import UnknownTopicError
from topicfs.storage.messages import which_topic
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)


class PartitionEnds(Protocol):
    """The ends of partitions at one moment."""

    def earliest(self, partition: TopicPartition) -> int:
        """Return the first readable offset."""

    def latest(self, partition: TopicPartition) -> int:
        """Return the exclusive end of the visible records."""

    def at_time(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Return the offset of the first visible record at or after `timestamp`; None if there is no such record."""


def select(
    selection: Selection, present: Iterable[TopicPartition], *, must_exist: bool = True
) -> list[TopicPartition]:
    """Return the selected partitions. Raises UnknownTopicError if a topic that the query names is missing.

    As with Spark's Kafka connector, an assigned partition that does not exist is skipped. A pattern matches any part
    of a topic's name, but does not match Kafka's own topics.
    """
    everything = sorted(present)
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        return [one for one in everything if pattern.search(one.topic) and not is_internal(one.topic)]
    topics = set(selection.topics or ())
    if selection.assigned is not None:
        topics = {one.topic for one in selection.assigned}
    names = {one.topic for one in everything}
    absent = sorted(topics - names)
    if absent and must_exist:
        raise UnknownTopicError(f"{', '.join(absent)}: no such topic{which_topic(absent[0], names)}")
    found = [one for one in everything if one.topic in topics]
    if selection.assigned is None:
        return found
    missing = [str(one) for one in sorted(selection.assigned - set(found)) if one.topic not in absent]
    if missing and must_exist:
        _LOGGER.warning("assign: skipped partitions that do not exist: %s", ", ".join(missing))
    return [one for one in found if one in selection.assigned]


def offsets_at(
    bound: offsets.Bound,
    partitions: Iterable[TopicPartition],
    ends: PartitionEnds,
    *,
    option: str,
    latest_after_last_record: bool = True,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at `bound`, which comes from `option` (startingOffsets, endingOffsets).

    If a time is after the last record, the result is the latest offset if `latest_after_last_record` is True; otherwise
    raises PipelineError. Also raises InvalidOptionError.
    """
    found = {}
    for partition, end in _by_partition(bound, list(partitions), option=option).items():
        if isinstance(end, offsets.AtTimestamp):
            offset = ends.at_time(partition, end.timestamp)
            if offset is None and not latest_after_last_record:
                raise PipelineError(
                    f"{partition}: no record at or after {end.timestamp}; "
                    "startingOffsetsByTimestampStrategy=latest begins at the end instead"
                )
            found[partition] = ends.latest(partition) if offset is None else offset
        else:
            found[partition] = _concrete(partition, end.offset, ends)
    return found


def _concrete(partition: TopicPartition, offset: int, ends: PartitionEnds) -> int:
    if offset == offsets.EARLIEST:
        return ends.earliest(partition)
    return ends.latest(partition) if offset == offsets.LATEST else offset


def _by_partition(
    bound: offsets.Bound, partitions: list[TopicPartition], *, option: str
) -> dict[TopicPartition, offsets.Everywhere | offsets.AtTimestamp]:
    if isinstance(bound, offsets.Everywhere):
        return dict.fromkeys(partitions, bound)
    if isinstance(bound, offsets.AtTimestamp):
        return dict.fromkeys(partitions, _at_time(bound.timestamp))
    if isinstance(bound, offsets.AtOffsets):
        _check_names(bound.offsets, partitions, option)
        return {one: offsets.Everywhere(bound.offsets[one]) for one in partitions}
    assert isinstance(bound, offsets.AtTimestamps)
    _check_names(bound.timestamps, partitions, f"{option}ByTimestamp")
    times: Mapping[TopicPartition, int] = bound.timestamps
    return {one: _at_time(times[one]) for one in partitions}


def _at_time(timestamp: int) -> offsets.Everywhere | offsets.AtTimestamp:
    return (
        offsets.Everywhere(timestamp)
        if timestamp in {offsets.EARLIEST, offsets.LATEST}
        else offsets.AtTimestamp(timestamp)
    )


def _check_names(named: Mapping[TopicPartition, int], partitions: list[TopicPartition], option: str) -> None:
    """Raise InvalidOptionError unless the option names exactly the partitions that are read."""
    differing = sorted(set(named) ^ set(partitions))
    if differing:
        raise InvalidOptionError(
            f"{option}: must name exactly the partitions that are read: "
            f"{', '.join(map(str, partitions))}; differing: {', '.join(map(str, differing))}"
        )


def in_order(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    """Return a range; raises PipelineError if the range ends before it begins, even with failOnDataLoss=false."""
    if start > end:
        raise PipelineError(f"{partition}: the range would begin at {start}, after its end, {end}")
    return OffsetRange(partition, start, end)


def within(partition: TopicPartition, start: int, end: int, *, earliest: int, latest: int) -> tuple[int, int]:
    """Return the range; a range that ends before its start becomes empty.

    Raises DataLossError if the range exceeds [earliest, latest].
    """
    if start < earliest or start > latest:
        raise _lost(partition, f"starting offset {start} is outside [{earliest}, {latest}]")
    if end > latest:
        raise _lost(partition, f"ending offset {end} is beyond {latest}")
    return start, max(start, end)


def clamp(start: int, end: int, *, earliest: int, latest: int) -> tuple[int, int]:
    """Cut a range down to [earliest, latest]."""
    start = min(max(start, earliest), latest)
    return start, max(start, min(end, latest))


def _lost(partition: TopicPartition, what: str) -> DataLossError:
    return DataLossError(f"{partition}: {what}{DataLossError.REMEDY}reads what exists")
