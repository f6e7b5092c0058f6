"""The samples of an engine: topics, partitions, logs, groups. Queries no broker, and the disk only for free space."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from prometheus_client.core import Metric as Family

from topicfs.coordination.engine import Engine
from topicfs.fusefs.metrics import table
from topicfs.fusefs.metrics.scrape import Pace, family, histogram, label_text, single
from topicfs.storage.counts.engine_counts import OTHERS
from topicfs.storage.counts.topic_counts import TopicCounts
from topicfs.storage.messages import printable
from topicfs.storage.model import DirectoryStatus, Offset, TopicPartition

MAX_LAGS = 1000
"""Only this many pairs of a group and a topic, those with the largest lags, have their own sample; one sample sums up
all others.
"""


@dataclass(slots=True)
class TopicSums:
    """The sums over a topic's open partitions."""

    partitions: int = 0
    records: int = 0
    end_offsets: int = 0
    offline: int = 0
    log_bytes: int | None = 0


@dataclass(slots=True)
class Walk:
    """The sums over all open partitions, from one pass over them."""

    partitions: int = 0
    opened: int = 0
    offline: int = 0
    under_replicated: int = 0
    topics: dict[str, TopicSums] = field(default_factory=dict)
    """Sums by topic; topics that are not counted separately are in `OTHERS`."""
    ends: dict[TopicPartition, Offset] = field(default_factory=dict)
    """Last stable offsets of the requested partitions."""


def engine_families(engine: Engine, pace: Pace) -> Iterator[Family]:
    """Yield the engine's counters and gauges."""
    counts = engine.counts
    by_topic = counts.by_topic()
    positions = engine.groups.known_positions()
    wanted = {place for own in positions.values() for place in own}
    walk = _walk(engine, by_topic, wanted, pace)
    yield from _topic_families(by_topic, walk)
    yield single(table.TOPICS, len(engine.topics()))
    yield single(table.PARTITIONS, walk.partitions)
    yield single(table.OPEN_PARTITIONS, walk.opened)
    yield single(table.OFFLINE_PARTITIONS, walk.offline)
    yield single(table.UNDER_REPLICATED, walk.under_replicated)
    yield single(table.ROLLS, counts.rolls)
    yield histogram(table.FLUSH_DURATION, [((), list(counts.flushes.buckets), counts.flushes.total_ns)])
    yield single(table.CLEANINGS, counts.cleanings)
    yield single(table.CLEANED_BYTES, counts.cleaned_bytes)
    yield single(table.RECOVERIES, counts.recoveries)
    yield single(table.RECOVERY_CUT, counts.recovery_bytes_cut)
    yield single(table.ISR_SHRINKS, counts.isr_shrinks)
    yield single(table.ISR_EXPANDS, counts.isr_expands)
    yield single(table.WARNINGS, len(engine.warnings))
    yield from _directory_families(engine.directories())
    yield from _group_families(engine, positions, walk.ends, pace)
    if engine.remote:
        yield single(table.CACHE_HITS, counts.cache_hits)
        yield single(table.CACHE_MISSES, counts.cache_misses)


def _walk(
    engine: Engine, by_topic: Mapping[str, TopicCounts], wanted: set[TopicPartition], pace: Pace
) -> Walk:
    """Visit every open partition once."""
    found = Walk()
    for name, topic in engine.topics().items():
        found.partitions += len(topic.partitions())
        sums = found.topics.setdefault(name if name in by_topic else OTHERS, TopicSums())
        for partition in topic.opened():
            pace.count_step()
            summary = partition.summary()
            found.opened += 1
            found.offline += summary.offline
            found.under_replicated += summary.missing_replicas > 0
            sums.partitions += 1
            sums.records += summary.end_offset - summary.start_offset
            sums.end_offsets += summary.end_offset
            sums.offline += summary.offline
            if summary.log_bytes is None or sums.log_bytes is None:
                sums.log_bytes = sums.log_bytes if summary.offline else None
            else:
                sums.log_bytes += summary.log_bytes
            if wanted:
                place = TopicPartition(name, partition.number)
                if place in wanted:
                    found.ends[place] = summary.stable_end
        pace.count_step()
    return found


def _topic_families(by_topic: Mapping[str, TopicCounts], walk: Walk) -> Iterator[Family]:
    counted = [
        (name, one) for name, one in by_topic.items() if name != OTHERS or one.records or one.reads.size_bytes
    ]
    yield family(table.APPENDS, (((name,), one.small_appends + one.larger_appends) for name, one in counted))
    yield family(table.RECORDS, (((name,), one.records) for name, one in counted))
    yield family(table.BATCHES, (((name,), one.small_appends + one.batches) for name, one in counted))
    yield family(table.APPENDED_BYTES, (((name,), one.bytes_appended) for name, one in counted))
    yield family(table.FETCHED_BYTES, (((name,), one.reads.size_bytes) for name, one in counted))
    opened = [(name, one) for name, one in walk.topics.items() if one.partitions]
    yield family(table.TOPIC_PARTITIONS, (((name,), one.partitions) for name, one in opened))
    yield family(table.TOPIC_RECORDS, (((name,), one.records) for name, one in opened))
    yield family(table.TOPIC_ENDS, (((name,), one.end_offsets) for name, one in opened))
    yield family(table.TOPIC_OFFLINE, (((name,), one.offline) for name, one in opened))
    sizes = [(name, one.log_bytes) for name, one in opened]
    yield family(table.TOPIC_BYTES, (((name,), size) for name, size in sizes if size is not None))


def _directory_families(directories: Iterable[DirectoryStatus]) -> Iterator[Family]:
    # Bytes of a directory name that are not UTF-8 cannot appear in the text.
    found = [(printable(one.path), one) for one in directories]
    disks = {}
    for path, one in found:
        if one.offline is None:
            with suppress(OSError):
                disks[path] = os.statvfs(one.path)
    yield family(table.DIRECTORY_ONLINE, (((path,), one.offline is None) for path, one in found))
    yield family(table.DIRECTORY_PARTITIONS, (((path,), one.partitions) for path, one in found))
    yield family(
        table.DIRECTORY_SIZE, (((path,), disk.f_blocks * disk.f_frsize) for path, disk in disks.items())
    )
    yield family(
        table.DIRECTORY_FREE, (((path,), disk.f_bavail * disk.f_frsize) for path, disk in disks.items())
    )


def _group_families(
    engine: Engine,
    positions: Mapping[str, Mapping[TopicPartition, Offset]],
    ends: Mapping[TopicPartition, Offset],
    pace: Pace,
) -> Iterator[Family]:
    summary = engine.groups.summary()
    if summary is not None:
        yield single(table.GROUPS, summary.groups)
        yield single(table.GROUP_MEMBERS, summary.members)
    lags: dict[tuple[str, str], int] = {}
    for group, own in pace.paced(positions.items()):
        shown_name = label_text(group)
        for place, position in own.items():
            if place in ends:
                key = (shown_name, place.topic)
                lags[key] = lags.get(key, 0) + max(ends[place] - position, 0)
    shown = sorted(lags.items(), key=lambda one: (-one[1], one[0]))
    rest = sum(lag for _, lag in shown[MAX_LAGS:])
    others = [((OTHERS, OTHERS), rest)] if len(shown) > MAX_LAGS else []
    yield family(table.GROUP_LAG, [*sorted(shown[:MAX_LAGS]), *others])
