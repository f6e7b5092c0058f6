"""Queries of jobs: counts the rows written, and reports lost records in one line with the remedy of the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Observation
from pyspark.sql import functions as spark_functions
from pyspark.sql.streaming.readwriter import DataStreamReader

from topicfs.pipeline.errors import DataLossError, condition_of, raised_in
from topicfs.pipeline.places.place import SparkPlace, place_of

OTHER_CHECKPOINT = "to process the records that exist now, name another checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """Options of a job that reads topics and appends to another topic."""

    path: str | SparkPlace
    """Data directories, or a Kafka cluster (`pipeline.places.place`)."""
    source: str
    """Topic names, separated by commas."""
    target: str
    """The topic to append to."""
    target_path: str | SparkPlace | None = None
    """Place of the target, like `path`; None: the place of the source."""
    where: str = "true"
    """A SQL condition over the source's columns."""
    checkpoint: str | None = None
    """A directory that stores how far the job has read. None: the job reads all records, in one run."""

    def places(self) -> tuple[SparkPlace, SparkPlace]:
        """Return the places of the source and of the target."""
        return place_of(self.path), place_of(self.target_path or self.path)


def every_record(reader: DataFrameReader | DataStreamReader, place: SparkPlace, topics: str) -> DataFrame:
    """Read every record of the topics by a batch or stream reader, except records of aborted or open transactions."""
    options = {
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    return reader.format(place.format).options(**place.options, **options, subscribe=topics).load()


@contextmanager
def losses_reported(remedy: str) -> Iterator[None]:
    """If a query in the block, or one of its tasks, has lost records, raise a DataLossError with `remedy`."""
    try:
        yield
    except DataLossError as error:
        raise _with_remedy(str(error), remedy) from error
    except PySparkException as error:
        found = raised_in(str(error))
        if found is None or found.condition != condition_of(DataLossError):
            raise
        raise _with_remedy(found.message, remedy) from error


def _with_remedy(said: str, remedy: str) -> DataLossError:
    return DataLossError(f"{said.partition(DataLossError.REMEDY)[0]}; {remedy}")


def write_counted(rows: DataFrame, target: SparkPlace, *, topic: str) -> int:
    """Append `rows` to a topic; return their number, because sinks do not report it. Raises Spark's own errors."""
    if target.is_kafka:
        return _send_counted(rows, target, topic=topic)
    written = Observation()
    _write(rows.observe(written, spark_functions.count("*").alias("rows")), target, topic=topic)
    return int(written.get["rows"])


def _send_counted(rows: DataFrame, target: SparkPlace, *, topic: str) -> int:
    """Append rows to a topic of a cluster through Kafka's batch sink; return the number of rows.

    Spark makes no observation for this sink, so waiting for an observation would never end. Instead the rows are
    cached (in memory, then on the executors' disks), counted, and sent from the cache.
    """
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        count = kept.count()
        _write(kept, target, topic=topic)
    finally:
        kept.unpersist()
    return count


def _write(rows: DataFrame, target: SparkPlace, *, topic: str) -> None:
    rows.write.format(target.format).mode("append").options(**target.options, topic=topic).save()
