"""Archived rows into a Kafka cluster, which assigns offsets itself: partitions, order, times, keys and values are kept.

Spark's own connector writes no times, so tasks bring rows through a producer of their own; all of a partition comes
from one task, in the order of its offsets. A task that Spark runs a second time sends its rows a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as spark_functions
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from topicfs.migration.cluster import KafkaCluster
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.restore.plan import ConflictError, Extent, partitions_needed
from topicfs.pipeline.tasks.task_source import write_in_tasks
from topicfs.storage.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 50,
    "message.max.bytes": 1_000_000_000,
    "log_level": 0,
}
"""Settings of the producers: all replicas acknowledge, order holds over retries; the topic limits the size of records."""
FLUSH_S = 120.0
"""Longest wait for the acknowledgements that are missing at the end of a task."""


def check_cluster(connection: Mapping[str, str], extents: Mapping[TopicPartition, Extent]) -> None:
    """Check that every topic exists, is large enough and has no records (ConflictError; ClusterError from the cluster).

    `connection` has librdkafka's settings: the brokers, and how to connect.
    Records that exist may be those of an interrupted run: they would be written twice.
    """
    cluster = KafkaCluster(connection["bootstrap.servers"], connection)
    for topic in sorted({one.topic for one in extents}):
        needed = partitions_needed(extents, topic)
        found = cluster.find_topic(topic)
        if found is None or found.partitions < needed:
            has = "is not there" if found is None else f"has {found.partitions} partitions"
            raise ConflictError(
                f"{topic}: {has} in the cluster; make it with {needed} or more partitions first"
            )
        held = sum(len(span) for span in cluster.offsets(topic, found.partitions).values())
        if held:
            raise ConflictError(
                f"{topic}: holds records already, perhaps of a run that was interrupted; delete and create it again, or "
                "restore into another topic"
            )


def write_to_cluster(rows: DataFrame, connection: Mapping[str, str]) -> None:
    """Send every row; when this returns the cluster has acknowledged them."""
    place = ["topic", "partition"]
    # As numbers: Python has no datetime after the year 9999.
    sent = rows.select(*COLUMNS).withColumn("timestamp", spark_functions.unix_millis("timestamp"))
    ordered = sent.repartition(*place).sortWithinPartitions(*place, "offset")
    write_in_tasks(ordered, ClusterWriter(connection))


class ClusterWriter(DataSourceArrowWriter):
    """Sends in the tasks; nothing is left to be committed."""

    def __init__(self, connection: Mapping[str, str]) -> None:
        self._connection = connection

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send a task's rows, and wait until they are acknowledged (PipelineError)."""
        sending = _Sending(self._connection)
        for batch in iterator:
            for row in batch.to_pylist():
                sending.send(row)
        sending.finish()
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the records are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: records that were sent cannot be taken back."""


class _Sending:
    """A producer, and the first thing that went wrong with it."""

    def __init__(self, connection: Mapping[str, str]) -> None:
        client: Any = import_module("confluent_kafka")
        self._producer = client.Producer({**connection, **SETTINGS})
        self._error: type[Exception] = client.KafkaException
        self._failure: str | None = None

    def send(self, row: Mapping[str, Any]) -> None:
        headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
        while True:
            try:
                self._producer.produce(
                    row["topic"],
                    value=row["value"],
                    key=row["key"],
                    partition=row["partition"],
                    timestamp=row["timestamp"],
                    headers=headers,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            except self._error as error:
                raise PipelineError(f"{row['topic']}-{row['partition']}: {error.args[0].str()}") from None
            else:
                break
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        left = self._producer.flush(FLUSH_S)
        self._check()
        if left:
            raise PipelineError(f"{left} records were not acknowledged within {FLUSH_S:g} s")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = f"{message.topic()}-{message.partition()}: {error.str()}"

    def _check(self) -> None:
        if self._failure is not None:
            raise PipelineError(self._failure)
