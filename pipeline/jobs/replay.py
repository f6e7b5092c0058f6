"""Topic to topic, through a SQL filter and projection: at once, or incrementally under a checkpoint.

At once, the write is whole or nothing. With a checkpoint, each run brings what came since the last one, each record
once, wherever a run was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as spark_functions

import pipeline

RESULT = "source string, target string, records long"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is replayed where."""

    path: str
    """Data directories, as the option of the format."""
    source: str
    """Topics, separated by commas."""
    target: str
    """The topic that is appended to."""
    target_path: str | None = None
    """Its data directories; None: those of the source."""
    where: str = "true"
    """A SQL condition over the source's columns."""
    select: str = "key, value, headers, timestamp"
    """SQL expressions that make the sink's columns."""
    checkpoint: str | None = None
    """A directory that remembers how far it came; None: everything, at once."""


def replay(spark: SparkSession, options: ReplayOptions) -> DataFrame:
    """Replay, and tell in one row how many records were written."""
    pipeline.register(spark)
    records = _replay_new(spark, options) if options.checkpoint else _replay_all(spark, options)
    return spark.createDataFrame([(options.source, options.target, records)], RESULT)


def _replay_all(spark: SparkSession, options: ReplayOptions) -> int:
    source = spark.read.format("topicfs").options(**_source(options)).load()
    written = Observation()
    rows = _chosen(spark, source, options).observe(written, spark_functions.count("*").alias("records"))
    rows.write.format("topicfs").mode("append").options(**_sink(options)).save()
    return int(written.get["records"])


def _replay_new(spark: SparkSession, options: ReplayOptions) -> int:
    source = spark.readStream.format("topicfs").options(**_source(options), startingOffsets="earliest").load()
    rows = _chosen(spark, source, options).observe("written", spark_functions.count("*").alias("records"))
    sink = rows.writeStream.format("topicfs").options(**_sink(options))
    query = sink.option("checkpointLocation", options.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    observed = (progress.observedMetrics.get("written") for progress in query.recentProgress)
    return sum(int(row["records"]) for row in observed if row is not None)


def _chosen(spark: SparkSession, source: DataFrame, options: ReplayOptions) -> DataFrame:
    return spark.sql(f"SELECT {options.select} FROM {{source}} WHERE {options.where}", source=source)  # noqa: S608 (the user's own)


def _source(options: ReplayOptions) -> dict[str, str]:
    return {"path": options.path, "subscribe": options.source, "includeHeaders": "true"}


def _sink(options: ReplayOptions) -> dict[str, str]:
    return {"path": options.target_path or options.path, "topic": options.target}
