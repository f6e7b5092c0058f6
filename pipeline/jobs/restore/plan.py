"""The plan of a restore, made without Spark: topics to create, and records that exist, conflict, or must be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.archive import TopicNote
from topicfs.pipeline.sink.layout import TopicFacts, TopicLayout, layout_of, read_topics
from topicfs.pipeline.source.directories import SourceDirectories
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import is_internal
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.staging.manifest import LogPlacement, NewTopic
from topicfs.storage.topics.topic import lenient_config

MAX_RANGES = 50
"""Maximum number of ranges in a round, because each range is a condition of the round's query."""


class ConflictError(PipelineError):
    """A topic cannot take the archive's records, for example because it has other records at the same offsets."""


class Extent(NamedTuple):
    """The records that an archive has of a partition: first and last offset, number, and oldest time."""

    first: int
    last: int
    records: int
    oldest_ms: int


class Span(NamedTuple):
    """Offsets [start, end)."""

    start: int
    end: int


class PartitionPlan(NamedTuple):
    overlap: Span
    """Archived offsets that the log already has; empty if `end` is not above `start`."""
    rest: Span
    """Archived offsets to append; empty if `end` is not above `start`."""
    place: LogPlacement
    """The place in the log where the first offset of `rest` goes."""


def plan_partition(partition: TopicPartition, extent: Extent, bounds: Span) -> PartitionPlan:
    """Plan how to append the records `extent` to a log that has the offsets `bounds`. Raises ConflictError."""
    whole = Span(extent.first, extent.last + 1)
    if bounds.start == bounds.end:
        if bounds.end > whole.end:
            raise ConflictError(
                f"{partition}: is empty, but its offsets up to {bounds.end - 1} are used, and the archive ends at "
                f"{extent.last}; restore into another topic, or delete this one first"
            )
        start = None if bounds.end == extent.first else Offset(extent.first)
        return PartitionPlan(Span(extent.first, extent.first), whole, LogPlacement(Offset(bounds.end), start))
    if bounds.start > extent.first:
        raise ConflictError(
            f"{partition}: begins at {bounds.start}, the archive at {extent.first}, and nothing can be put in front "
            "of a log; restore into another topic, or delete this one first"
        )
    return PartitionPlan(
        Span(extent.first, min(bounds.end, whole.end)),
        Span(max(bounds.end, extent.first), whole.end),
        LogPlacement(Offset(bounds.end)),
    )


def plan_rounds(
    parts: Mapping[TopicPartition, PartitionPlan], extents: Mapping[TopicPartition, Extent], max_records: int
) -> list[dict[TopicPartition, Span]]:
    """Divide the records into rounds of at most about `max_records`.

    Gaps between offsets are assumed to be spread evenly.
    """
    rounds: list[dict[TopicPartition, Span]] = []
    room: float = 0
    for partition, span, records in _slices(parts, extents, max_records):
        if records > room or partition in rounds[-1] or len(rounds[-1]) >= MAX_RANGES:
            rounds.append({})
            room = max_records
        rounds[-1][partition] = span
        room -= records
    return rounds


def _slices(
    parts: Mapping[TopicPartition, PartitionPlan], extents: Mapping[TopicPartition, Extent], max_records: int
) -> Iterator[tuple[TopicPartition, Span, float]]:
    for partition in sorted(parts):
        rest, extent = parts[partition].rest, extents[partition]
        density = extent.records / (extent.last + 1 - extent.first)
        width = max(1, int(max_records / density))
        for start in range(rest.start, rest.end, width):
            end = min(start + width, rest.end)
            yield partition, Span(start, end), density * (end - start)


def overlaps(parts: Mapping[TopicPartition, PartitionPlan]) -> dict[TopicPartition, Span]:
    return {one: part.overlap for one, part in parts.items() if part.overlap.end > part.overlap.start}


def partitions_needed(partitions: Iterable[TopicPartition], topic: str) -> int:
    """Return the smallest number of partitions with which the topic has all of `partitions`."""
    return max((one.partition + 1 for one in partitions if one.topic == topic), default=0)


FOREVER = {"retention.ms": "-1"}
_NOTHING = Span(0, 0)


def known_topics(directories: Sequence[Path]) -> dict[str, TopicFacts]:
    """Return existing topics; none if the directories are empty and not data directories yet. Raises PipelineError."""
    if not any(any(directory.iterdir()) for directory in directories):
        return {}
    return read_topics(directories)


def topics_to_make(
    extents: Mapping[TopicPartition, Extent],
    known: Mapping[str, TopicFacts],
    notes: Mapping[str, TopicNote],
    *,
    partitions: int | None,
    now_ms: int,
) -> dict[str, NewTopic]:
    """Return the topics to create, with their former settings, changed so that retention keeps restored records."""
    made = {}
    for topic in sorted({one.topic for one in extents}):
        if is_internal(topic):
            raise ConflictError(f"{topic}: is Kafka's own topic; only Kafka writes to it")
        needed = partitions_needed(extents, topic)
        oldest = min(extent.oldest_ms for one, extent in extents.items() if one.topic == topic)
        facts = known.get(topic)
        if facts is not None:
            _check_fits(topic, facts, needed, oldest_ms=oldest, now_ms=now_ms)
            continue
        note = notes.get(topic, TopicNote(1, {}))
        config, _ = lenient_config(note.overrides, TopicConfig())
        keeps = {} if _keeps(config, oldest, now_ms) else FOREVER
        count = max(needed, note.partitions, partitions or 1)
        made[topic] = NewTopic(count, {**note.overrides, **keeps})
    return made


def empty_topics(
    names: Iterable[str], notes: Mapping[str, TopicNote], *, partitions: int | None
) -> dict[str, NewTopic]:
    """Return the topics to create although they have no records, with their former settings and partitions."""
    return {
        name: NewTopic(max(notes[name].partitions, partitions or 1), dict(notes[name].overrides))
        for name in sorted(names)
        if not is_internal(name)
    }


def log_bounds(
    directories: Sequence[Path], extents: Mapping[TopicPartition, Extent], known: Mapping[str, TopicFacts]
) -> dict[TopicPartition, Span]:
    """Return the start and end of each log, as its owner last checkpointed them. Raises StorageError, OSError."""
    if not any(one.topic in known for one in extents):
        # An empty new directory cannot be read.
        return dict.fromkeys(extents, _NOTHING)
    with closing(SourceDirectories(directories)) as source:
        return {one: _bounds(source, one) if one.topic in known else _NOTHING for one in extents}


def layouts_of(
    topics: Sequence[str], known: Mapping[str, TopicFacts], made: Mapping[str, NewTopic]
) -> dict[str, TopicLayout]:
    """Return the layout of each topic: of an existing topic, or of a topic that the job will create."""
    new = {topic: lenient_config(one.overrides, TopicConfig())[0] for topic, one in made.items()}
    facts = {topic: TopicFacts((), None, made[topic].overrides, config) for topic, config in new.items()}
    return {topic: layout_of((facts | dict(known))[topic]) for topic in topics}


def _check_fits(topic: str, facts: TopicFacts, needed: int, *, oldest_ms: int, now_ms: int) -> None:
    if len(facts.partitions) < needed:
        raise ConflictError(
            f"{topic}: has {len(facts.partitions)} partition{'s' * (len(facts.partitions) != 1)}, the archive has {needed}; "
            "add partitions, or restore into another topic"
        )
    if not _keeps(facts.config, oldest_ms, now_ms):
        raise ConflictError(
            f"{topic}: retention.ms={facts.config.retention_ms} would delete restored records as too old; first run: "
            f"topicfs config {topic} retention.ms=-1"
        )


def _keeps(config: TopicConfig, oldest_ms: int, now_ms: int) -> bool:
    return not config.deletes or config.retention_ms < 0 or oldest_ms >= now_ms - config.retention_ms


def _bounds(source: SourceDirectories, partition: TopicPartition) -> Span:
    try:
        offsets = source.log(partition).offsets()
    except PipelineError as error:
        raise ConflictError(f"{error}; add it, or restore into another topic") from None
    return Span(offsets.log_start_offset, offsets.high_watermark)
