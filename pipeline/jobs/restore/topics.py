"""The topics of a restore: those that exist, as they are, and those that must be created."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.archive_files import TopicNote
from topicfs.pipeline.jobs.restore.plan import ConflictError, Extent, Span, partitions_needed
from topicfs.pipeline.sink.layout import TopicFacts, TopicLayout, layout_of, read_topics
from topicfs.pipeline.source.directories import SourceDirectories
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.disk.names import is_internal
from topicfs.storage.model import TopicPartition
from topicfs.storage.staging.manifest import NewTopic
from topicfs.storage.topics.topic import lenient_config

FOREVER = {"retention.ms": "-1"}
_NOTHING = Span(0, 0)


def known_topics(directories: Sequence[Path]) -> dict[str, TopicFacts]:
    """Return the topics that are there; none in a directory that is still to become a data directory (PipelineError)."""
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
    """Return the topics to create, with the settings and partitions that they had; retention must not delete what comes back.

    Raises ConflictError where a topic that is there would not take, or not keep, what comes.
    """
    made = {}
    for topic in sorted({one.topic for one in extents}):
        if is_internal(topic):
            raise ConflictError(f"{topic}: Kafka's own; only Kafka writes there")
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
    """Return the topics without records that are to be created, with the settings and partitions that they had."""
    return {
        name: NewTopic(max(notes[name].partitions, partitions or 1), dict(notes[name].overrides))
        for name in sorted(names)
        if not is_internal(name)
    }


def log_bounds(
    directories: Sequence[Path], extents: Mapping[TopicPartition, Extent], known: Mapping[str, TopicFacts]
) -> dict[TopicPartition, Span]:
    """Start and end of each log, as far as its owner has checkpointed them (StorageError, OSError)."""
    if not any(one.topic in known for one in extents):
        # A new directory is none that could be read.
        return dict.fromkeys(extents, _NOTHING)
    with closing(SourceDirectories(directories)) as source:
        return {one: _bounds(source, one) if one.topic in known else _NOTHING for one in extents}


def layouts_of(
    topics: Sequence[str], known: Mapping[str, TopicFacts], made: Mapping[str, NewTopic]
) -> dict[str, TopicLayout]:
    """Return the layout of each topic: as it is, or as the job will create it."""
    new = {topic: lenient_config(one.overrides, TopicConfig())[0] for topic, one in made.items()}
    facts = {topic: TopicFacts((), None, made[topic].overrides, config) for topic, config in new.items()}
    return {topic: layout_of((facts | dict(known))[topic]) for topic in topics}


def _check_fits(topic: str, facts: TopicFacts, needed: int, *, oldest_ms: int, now_ms: int) -> None:
    if len(facts.partitions) < needed:
        raise ConflictError(
            f"{topic}: has {len(facts.partitions)} partition{'s' * (len(facts.partitions) != 1)}, the archive {needed}; "
            "add them, or restore into another topic"
        )
    if not _keeps(facts.config, oldest_ms, now_ms):
        raise ConflictError(
            f"{topic}: retention.ms={facts.config.retention_ms} would delete what comes back, for its age; first: "
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
