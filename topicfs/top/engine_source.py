"""Samples of a cluster or of directories that others may write; a read-only engine is opened again for each sample."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from topicfs.coordination.engine import Engine
from topicfs.fusefs.groups.positions import lags
from topicfs.places import Place
from topicfs.storage.engine import Topic
from topicfs.storage.errors import GroupsUnsupportedError, StorageError
from topicfs.storage.messages import reason_of
from topicfs.top.samples import DiskSample, PartitionSample, TopicSample, TopSample

MAX_CLUSTER_SIZES = 200
"""Maximum number of a cluster's partitions whose sizes are queried, because each size takes a request to a broker."""


class EngineSource:
    """Samples an engine, which is opened for each sample. See `topicfs.top.samples.TopSource`."""

    def __init__(self, place: Place, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._place = place
        self._clock = clock

    def sample(self) -> TopSample:
        with self._place.opened() as engine:
            at, notes = self._clock(), list(engine.warnings)
            lags: Mapping[str, Mapping[str, int]] = {}
            try:
                lags = _lags(engine)
            except GroupsUnsupportedError:
                pass
            except StorageError as error:
                notes.append(f"groups: {reason_of(error)}")
            topics = engine.topics()
            count = sum(len(topic.partitions()) for topic in topics.values())
            with_sizes = not engine.remote or count <= MAX_CLUSTER_SIZES
            return TopSample(
                at=at,
                topics={
                    name: _topic(topic, lags.get(name, {}), with_sizes=with_sizes)
                    for name, topic in topics.items()
                },
                disks=_disks(engine),
                notes=notes,
            )

    def partitions(self, topic: str) -> list[PartitionSample]:
        with self._place.opened() as engine:
            found = {number: one.summary() for number, one in engine.topic(topic).partitions().items()}
            return [
                PartitionSample(
                    number=number,
                    start_offset=one.start_offset,
                    end_offset=one.end_offset,
                    state="offline" if one.offline else "online",
                )
                for number, one in sorted(found.items())
            ]


def _topic(topic: Topic, lags: Mapping[str, int], *, with_sizes: bool) -> TopicSample:
    summaries = [partition.summary() for partition in topic.partitions().values()]
    sizes = [one.log_bytes for one in summaries if not one.offline]
    if None in sizes and with_sizes:
        with suppress(StorageError):
            sizes = [partition.status().log_bytes for partition in topic.partitions().values()]
    known = [size for size in sizes if size is not None]
    log_bytes = sum(known) if len(known) == len(sizes) else None
    end_offsets = sum(one.end_offset for one in summaries)
    return TopicSample(
        partitions=len(summaries),
        records=sum(one.end_offset - one.start_offset for one in summaries),
        end_offsets=end_offsets,
        log_bytes=log_bytes,
        appended_records=end_offsets,
        appended_bytes=log_bytes,
        lags=lags,
        offline=sum(one.offline for one in summaries),
    )


def _lags(engine: Engine) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for group in engine.groups.listed():
        for place, lag in lags(engine, engine.groups.positions(group).committed).items():
            of_topic = found.setdefault(place.topic, {})
            of_topic[group] = of_topic.get(group, 0) + (lag or 0)
    return found


def _disks(engine: Engine) -> list[DiskSample]:
    found = []
    for one in engine.directories():
        with suppress(OSError):
            disk = os.statvfs(one.path)
            found.append(
                DiskSample(
                    path=one.path,
                    free_bytes=disk.f_bavail * disk.f_frsize,
                    size_bytes=disk.f_blocks * disk.f_frsize,
                )
            )
    return found
