"""Topics to Parquet, a folder a topic and date: incremental, and each record once however often it is run.

    TARGET/topic=orders/date=2026-01-02/part-….parquet        all of Kafka's columns, the headers too
    TARGET/_checkpoint/  TARGET/_spark_metadata/              how far it came, and which files count
    TARGET/_topics.json                                       partitions and settings of topics of a data directory

The date is that of the record's timestamp, in UTC. Records of transactions that were aborted are not archived, those of
open ones not yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import pipeline
from pipeline.jobs.archived import CHECKPOINT, TopicNote, archived_rows, write_notes
from pipeline.paths import data_directories
from pipeline.place import Place, place_of
from pipeline.sink.layout import read_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What is archived where."""

    path: str
    """Data directories, or a Kafka cluster (`pipeline.place`)."""
    topics: str
    """Separated by commas."""
    target: Path
    """The archive: a directory of its own."""


def archive(spark: SparkSession, options: ArchiveOptions) -> DataFrame:
    """Archive what came since the last run, and tell what the archive holds: one row a topic, date and partition."""
    pipeline.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    place = place_of(options.path)
    source = (
        spark.readStream.format(place.format)
        .options(**place.options)
        .option("subscribe", options.topics)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    target = str(options.target.absolute())
    query = (
        source.selectExpr("*", "to_date(timestamp) AS date")
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("checkpointLocation", f"{target}/{CHECKPOINT}")
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    _note_topics(place, options)
    archived = archived_rows(spark, options.target.absolute())
    counted = archived.groupBy("topic", "date", "partition").agg({"offset": "min", "*": "count"})
    return counted.selectExpr(
        "topic", "date", "partition", "`min(offset)` AS first_offset", "`count(1)` AS records"
    ).orderBy("topic", "date", "partition")


def _note_topics(place: Place, options: ArchiveOptions) -> None:
    """Remember what the records do not tell; of a cluster's topics they tell all that is known here."""
    if place.is_kafka:
        return
    known = read_topics(data_directories(place.path or ""))
    names = [one.strip() for one in options.topics.split(",")]
    notes = {
        name: TopicNote(known[name].partitions[-1] + 1, known[name].overrides)
        for name in names
        if name in known
    }
    write_notes(options.target.absolute(), notes)
