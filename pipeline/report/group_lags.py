"""Lags of groups of readers in the topics of a report (no Spark is needed)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, closing

from topicfs.coordination.engine import Engine
from topicfs.pipeline.places.cluster_records import opened_cluster
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.report.numbers import GroupLag
from topicfs.pipeline.tasks.output import FOR_PEOPLE
from topicfs.replication import open_directories
from topicfs.storage.errors import StorageError, UnknownTopicError
from topicfs.storage.model import TopicPartition

_LOGGER = logging.getLogger(__name__)


def find_lags(
    place: SparkPlace, topics: Collection[str] | None
) -> dict[TopicPartition, tuple[GroupLag, ...]]:
    """Return the groups by partition, ascending; of all topics, or of those named (blocking).

    Where they cannot be had, as without the right to see them, a warning says so: the report has all the rest.
    """
    try:
        with _opened(place) as engine:
            found: dict[TopicPartition, list[GroupLag]] = {}
            for partition, lag in _lags(engine):
                if topics is None or partition.topic in topics:
                    found.setdefault(partition, []).append(lag)
            return {partition: tuple(lags) for partition, lags in found.items()}
    except (StorageError, OSError) as error:
        _LOGGER.warning("%sgroups are not in the report: %s", FOR_PEOPLE, error)
        return {}


def _opened(place: SparkPlace) -> AbstractContextManager[Engine]:
    if place.is_kafka:
        return opened_cluster(place)
    return closing(open_directories(place.directories, read_only=True, left_out=place.left_out))


def _lags(engine: Engine) -> Iterator[tuple[TopicPartition, GroupLag]]:
    for group in engine.groups.listed():
        for partition, position in sorted(engine.groups.positions(group).committed.items()):
            try:
                bounds = engine.partition(*partition).offsets()
            except UnknownTopicError:
                continue  # It was deleted.
            lag = max(bounds.last_stable_offset - position.offset, 0)
            yield partition, GroupLag(group, position.offset, lag)
