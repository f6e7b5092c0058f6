"""The records that a path of a mount means, as ranges of offsets."""

from __future__ import annotations

from typing import NamedTuple

from topicfs.fusefs.forms import SUFFIXES
from topicfs.fusefs.selectors import RangePlace, RecordPlace, SelectorError, TimeRange, parse, resolve
from topicfs.fusefs.views.records import earliest_offset, latest_offset
from topicfs.paths import TopicPath
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.errors import InvalidNameError
from topicfs.storage.model import Isolation, Offset

WHOLE = "log"
ENDS = {"earliest": earliest_offset, "latest": latest_offset}


class RecordRange(NamedTuple):
    """The records of a partition with start_offset <= offset < end_offset."""

    partition: Partition
    start_offset: Offset
    end_offset: Offset


class Ranges(NamedTuple):
    """The ranges of a path, and the offset at which what is appended later goes on."""

    ranges: list[RecordRange]
    grows_at: Offset | None
    """None for what does not grow, and for a topic's path."""


def ranges_of(engine: LogEngine, path: TopicPath, isolation: Isolation) -> Ranges:
    """Find the records of a path as of now.

    Raises SelectorError where it names none, InvalidNameError for a file of no records, UnknownTopicError.
    """
    if any(path.name.endswith(suffix) for suffix in SUFFIXES):
        raise InvalidNameError(f"{path}: a format takes the place of a suffix; name the file without it")
    if path.partition is None:
        return Ranges(_of_topic(engine, path, isolation), None)
    return _of_partition(engine.partition(*path.topic_partition), path, isolation)


def _of_topic(engine: LogEngine, path: TopicPath, isolation: Isolation) -> list[RecordRange]:
    partitions = engine.topic(path.topic).partitions()
    if path.name == WHOLE:
        return [_whole(partitions[number], isolation) for number in sorted(partitions)]
    selector = parse(path.name)
    if not isinstance(selector, TimeRange):
        raise SelectorError(
            f"{path}: of a whole topic there are log, @TIME-@TIME and @TIME-; name a partition"
        )
    found = []
    for number in sorted(partitions):
        whole = _whole(partitions[number], isolation)
        place = resolve(selector, whole.partition, isolation=isolation)
        assert not isinstance(place, RecordPlace)
        found.append(_within(whole, place))
    return found


def _of_partition(partition: Partition, path: TopicPath, isolation: Isolation) -> Ranges:
    whole = _whole(partition, isolation)
    if path.name == WHOLE:
        return Ranges([whole], whole.end_offset)
    if path.name in ENDS:
        offset = ENDS[path.name](partition, isolation=isolation)
        return Ranges([] if offset is None else [_one(partition, offset)], None)
    place = resolve(parse(path.name), partition, isolation=isolation)
    if isinstance(place, RecordPlace):
        return Ranges([_one(partition, place.offset)], None)
    return Ranges([_within(whole, place)], whole.end_offset if place.end_offset is None else None)


def _within(whole: RecordRange, place: RangePlace) -> RecordRange:
    end = whole.end_offset if place.end_offset is None else place.end_offset
    return RecordRange(whole.partition, place.start_offset, end)


def _whole(partition: Partition, isolation: Isolation) -> RecordRange:
    partition.find_bounds()
    return RecordRange(partition, partition.log_start_offset, partition.visible_end(isolation))


def _one(partition: Partition, offset: Offset) -> RecordRange:
    return RecordRange(partition, offset, Offset(offset + 1))
