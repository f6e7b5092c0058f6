"""Writes archived rows to a Kafka cluster. Partitions, order, times, keys and values are kept; offsets are new.

Spark's own connector cannot write timestamps, so tasks append the rows through the client of topicfs. One task has all
rows of a partition, in the order of their offsets. If Spark runs a task again, its rows are appended again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from topicfs.pipeline.jobs.restore.plan import ConflictError, Extent, partitions_needed
from topicfs.pipeline.places.cluster_records import opened_cluster, partition_of, topic_of
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.sink.layout import Layout, TopicLayout
from topicfs.pipeline.sink.rows import MAX_KAFKA_BATCH_BYTES, RowEncoder
from topicfs.pipeline.spark_errors import reported
from topicfs.pipeline.tasks.task_source import write_in_tasks
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import records_of
from topicfs.storage.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from topicfs.cluster.engine import ClusterEngine

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


def check_cluster(place: SparkPlace, extents: Mapping[TopicPartition, Extent]) -> Layout:
    """Check that the topics exist, have enough partitions and no records; return their layout. Raises ConflictError."""
    names = sorted({one.topic for one in extents})
    with opened_cluster(place) as engine:
        return Layout({name: _layout(engine, name, partitions_needed(extents, name)) for name in names})


def _layout(engine: ClusterEngine, name: str, needed: int) -> TopicLayout:
    topic = topic_of(engine, name)
    partitions = {} if topic is None else topic.partitions()
    if topic is None or len(partitions) < needed:
        has = (
            "does not exist, or is hidden from you," if topic is None else f"has {len(partitions)} partitions"
        )
        raise ConflictError(f"{name}: {has} in the cluster; create it with {needed} or more partitions first")
    for one in partitions.values():
        one.find_bounds()
    if records_of(topic):
        raise ConflictError(
            f"{name}: has records already, perhaps of an interrupted run; delete and create it again, or "
            "restore into another topic"
        )
    settings = topic.ask_settings()
    largest = MAX_KAFKA_BATCH_BYTES if settings.refused else settings.config.max_message_bytes
    return TopicLayout(tuple(partitions), largest, topic.topic_id)


def write_to_cluster(rows: DataFrame, place: SparkPlace, layout: Layout) -> None:
    """Append every row. When the call returns, all in-sync replicas have the records."""
    names = ["topic", "partition"]
    ordered = rows.select(*COLUMNS).repartition(*names).sortWithinPartitions(*names, "offset")
    write_in_tasks(ordered, ClusterWriter(place.resolved(), layout))


class ClusterWriter(DataSourceArrowWriter):
    """Appends the rows within the tasks, so nothing is left to commit."""

    def __init__(self, place: SparkPlace, layout: Layout) -> None:
        self._place, self._layout = place, layout

    @reported
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append a task's rows to the topics of the layout, batch by batch. Raises StorageError, OSError."""
        encoder = RowEncoder(self._layout, None, now_ms=system_clock)
        for first in iterator:
            with opened_cluster(self._place, read_only=False) as engine:
                for rows in chain([first], iterator):
                    for partition, batch in encoder.encode(rows):
                        log = partition_of(engine, partition, self._layout.topic(partition.topic).topic_id)
                        log.append(batch, durable=True, encoded_here=True)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the brokers have acknowledged the records."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: appended records cannot be removed."""
