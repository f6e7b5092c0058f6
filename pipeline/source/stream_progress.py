"""The progress of a stream: which offsets are new, how many of them a trigger reads, and which records are lost.

A stream loses records if a partition is gone, if its log ends before the stream's next offset, or if its topic was
deleted and created again. The topic's ID shows that a topic was created again, even if the new log is longer. With
failOnDataLoss, the query fails before it plans a batch, so that its checkpoint does not change. Without it, the query
continues with the records that exist: at the end of a shorter log, or at the beginning of a new topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from topicfs.pipeline.errors import DataLossError
from topicfs.pipeline.source.query.offsets import Offsets, StreamState
from topicfs.pipeline.source.query.ranges import OffsetRange, count_new, limit_offsets, must_wait
from topicfs.pipeline.source.slices import Task
from topicfs.pipeline.source.topic_source import TopicSource
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """The partitions of a query at one moment."""

    visible: Offsets
    """End of each partition's visible records."""
    log_ends: Offsets
    """Ends of the logs, including records that are not visible yet."""
    topic_ids: dict[str, str]


class StreamProgress:
    """The progress of one streaming query through its source."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source
        self._final: _Seen | None = None
        """The partitions when `stop_at_latest` was called."""
        self._last_trigger_ms: int | None = None
        self.latest: Offsets = {}
        """Ends of the visible records when the partitions were last read."""

    def close(self) -> None:
        self._source.close()

    def begin(self) -> StreamState:
        """Return the first state of a query without a checkpoint."""
        partitions = self._source.partitions()
        start = self._source.start(partitions)
        for one in partitions:
            if start[one] > self._source.latest(one) or start[one] < self._source.earliest(one):
                start[one] = self._source.checked(OffsetRange(one, start[one], start[one])).start_offset
        return StreamState(start, self._source.topic_ids(partitions))

    def advance(self, known: StreamState, *, most: int | None, now_ms: int) -> StreamState:
        """Return the state at the end of the next batch: `known` if there is nothing to do yet.

        The batch has at most `most` offsets; new partitions begin at their earliest offset. Raises DataLossError if
        records were lost since `known`. With failOnDataLoss=false, planning the batch logs a warning instead.
        """
        now = self._read_partitions()
        options = self._source.options
        if options.fail_on_data_loss:
            for lost in _losses(known, now):
                self._report(lost)
        end = self._ends(known, now)
        start = self._starts(known, now, end)
        begun = self._last_trigger_ms is not None  # The first batch does not wait.
        if (
            begun
            and self._final is None
            and must_wait(
                new_offsets=count_new(start, end),
                min_offsets=options.min_offsets_per_trigger,
                waited_ms=now_ms - (self._last_trigger_ms or 0),
                max_delay_ms=options.max_trigger_delay_ms,
            )
        ):
            return known
        self._last_trigger_ms = now_ms
        offsets = end if most is None else limit_offsets(start, end, most)
        topics = {one.topic for one in end}
        kept = {topic: one for topic, one in known.topic_ids.items() if topic in topics}
        return StreamState(
            offsets, kept | {topic: now.topic_ids[topic] for topic in topics & now.topic_ids.keys()}
        )

    def stop_at_latest(self) -> None:
        """Limit the stream to the records that exist now."""
        self._final = self._read_partitions()

    def _read_partitions(self) -> _Seen:
        self._source.refresh()
        partitions = self._source.partitions(must_exist=False)
        self.latest = {one: self._source.latest(one) for one in partitions}
        log_ends = {one: self._source.log_end(one) for one in partitions}
        return _Seen(self.latest, log_ends, self._source.topic_ids(partitions))

    def _ends(self, known: StreamState, now: _Seen) -> Offsets:
        """Return where each partition's batch must end; partitions created after `stop_at_latest` are left out."""
        final = self._final or now
        ends: Offsets = {}
        for one, visible in now.visible.items():
            at = None if _is_replaced(one.topic, known.topic_ids, now.topic_ids) else known.offsets.get(one)
            if at is not None and now.log_ends[one] < at:
                ends[one] = visible
            elif _is_replaced(one.topic, final.topic_ids, now.topic_ids):
                ends[one] = visible if at is None else max(at, visible)
            elif one in final.visible or at is not None:
                end = min(visible, final.visible.get(one, 0))
                # Records may become invisible again if their broker was restarted.
                ends[one] = end if at is None else max(at, end)
        return ends

    def _starts(self, known: StreamState, now: _Seen, end: Offsets) -> Offsets:
        """Return where the batch begins in each partition of `end`: in a new partition, at the earliest offset."""
        return {
            one: self._source.earliest(one)
            if one not in known.offsets or _is_replaced(one.topic, known.topic_ids, now.topic_ids)
            else known.offsets[one]
            for one in end
        }

    def tasks(self, start: StreamState, end: StreamState) -> list[Task]:
        """Return the tasks between two states. Raises DataLossError, StorageError, OSError."""
        self._source.refresh()
        partitions = self._source.partitions(must_exist=False)
        topic_ids = self._source.topic_ids(partitions)
        for lost in _gone({**start.offsets, **end.offsets}, partitions):
            self._report(lost)
        replaced = self._report_replaced(end, topic_ids)
        recreated = self._report_replaced(
            start, end.topic_ids | {one: topic_ids[one] for one in topic_ids.keys() - end.topic_ids}
        )
        ranges = []
        for one in sorted(end.offsets.keys() & set(partitions)):
            if one.topic in replaced:
                continue
            if one.topic in recreated:
                begin = self._source.earliest(one)
            else:
                begin = start.offsets[one] if one in start.offsets else self._begin_new(one)
            ranges.append(self._checked(OffsetRange(one, begin, end.offsets[one])))
        return self._source.tasks(ranges)

    def _report_replaced(self, known: StreamState, now: Mapping[str, str]) -> set[str]:
        """Report a loss for each topic that now has another ID; return these topics."""
        topics = {topic for topic in known.topic_ids if _is_replaced(topic, known.topic_ids, now)}
        for topic in sorted(topics):
            self._report(_replaced(topic, known, now))
        return topics

    def _begin_new(self, partition: TopicPartition) -> int:
        earliest = self._source.earliest(partition)
        if earliest:
            self._report(f"{partition}: is new, and its first records are gone: it begins at {earliest}")
        return earliest

    def _checked(self, wanted: OffsetRange) -> OffsetRange:
        if wanted.end_offset < wanted.start_offset:
            self._report(_shorter(wanted.partition, wanted.start_offset, wanted.end_offset))
            return wanted._replace(end_offset=wanted.start_offset)
        return self._source.checked(wanted) if wanted.size else wanted

    def _report(self, what: str) -> None:
        if self._source.options.fail_on_data_loss:
            raise DataLossError(f"{what}{DataLossError.REMEDY}continues with what exists")
        _LOGGER.warning("%s", what)


def _losses(known: StreamState, now: _Seen) -> Iterator[str]:
    """Yield the losses of the stream since `known`."""
    yield from _gone(known.offsets, now.visible)
    recreated = {topic for topic in known.topic_ids if _is_replaced(topic, known.topic_ids, now.topic_ids)}
    yield from (_replaced(topic, known, now.topic_ids) for topic in sorted(recreated))
    for one, at in sorted(known.offsets.items()):
        if one in now.log_ends and one.topic not in recreated and now.log_ends[one] < at:
            yield _shorter(one, at, now.log_ends[one])


def _gone(known: Mapping[TopicPartition, int], present: Iterable[TopicPartition]) -> Iterator[str]:
    gone = sorted(known.keys() - set(present))
    if gone:
        yield f"{', '.join(map(str, gone))}: gone since the stream read there"


def _is_replaced(topic: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether the topic is in both maps and has different IDs there."""
    return topic in before and topic in now and before[topic] != now[topic]


def _replaced(topic: str, known: StreamState, now: Mapping[str, str]) -> str:
    at = ", ".join(
        f"{one} at {offset}" for one, offset in sorted(known.offsets.items()) if one.topic == topic
    )
    return (
        f"{topic}: was deleted and created again since the stream read there "
        f"(topic id {known.topic_ids[topic]}, now {now[topic]}; the stream was in {at})"
    )


def _shorter(partition: TopicPartition, at: int, end: int) -> str:
    return (
        f"{partition}: the stream was at {at}, now the log ends at {end}: "
        "records were cut off, or the topic was deleted and created again"
    )
