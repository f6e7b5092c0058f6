"""Topics to Parquet, a folder a topic and date: incremental, and each record once however often it is run.

    TARGET/topic=orders/date=2026-01-02/part-….parquet        all of Kafka's columns, the headers too
    TARGET/_checkpoint/  TARGET/_spark_metadata/              how far it came, and which files count

The date is that of the record's timestamp, in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What is archived where."""

    path: str
    """Data directories, as the option of the format."""
    topics: str
    """Separated by commas."""
    target: Path
    """The archive: a directory of its own."""


def archive(spark: SparkSession, options: ArchiveOptions) -> DataFrame:
    """Archive what came since the last run, and tell what the archive holds: one row a topic, date and partition."""
    pipeline.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    source = (
        spark.readStream.format("topicfs")
        .option("path", options.path)
        .option("subscribe", options.topics)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    target = str(options.target.absolute())
    query = (
        source.selectExpr("*", "to_date(timestamp) AS date")
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("checkpointLocation", f"{target}/_checkpoint")
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    archived = spark.read.parquet(target)
    counted = archived.groupBy("topic", "date", "partition").agg({"offset": "min", "*": "count"})
    return counted.selectExpr(
        "topic", "date", "partition", "`min(offset)` AS first_offset", "`count(1)` AS records"
    ).orderBy("topic", "date", "partition")
