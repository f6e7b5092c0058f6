"""Copies topics to a topic, through a SQL filter and projection: all at once, or incrementally with a checkpoint.

Without a checkpoint, the run writes either all records or none. With a checkpoint, each run copies the records since
the previous run, each record once, even if a run was interrupted. If the target is a Kafka cluster, Spark's connector
guarantees less: an interrupted run may have written only a part of the records, or some records twice, and the
timestamp of a record is the time of the write.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions

from topicfs import pipeline
from topicfs.pipeline.jobs import queries
from topicfs.pipeline.places.place import SparkPlace

RESULT = "source string, target string, records long"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(queries.QueryOptions):
    select: str = "key, value, headers, timestamp"
    """SQL expressions for the columns to write."""


def replay(spark: SparkSession, options: ReplayOptions) -> DataFrame:
    """Run the replay; return one row with the number of records written."""
    pipeline.register(spark)
    source, target = options.places()
    if options.checkpoint:
        records = _replay_new(spark, options, source, target)
    else:
        rows = queries.every_record(spark.read, source, options.source)
        records = queries.write_counted(_chosen(spark, rows, options), target, topic=options.target)
    return spark.createDataFrame([(options.source, options.target, records)], RESULT)


def _replay_new(spark: SparkSession, options: ReplayOptions, source: SparkPlace, target: SparkPlace) -> int:
    rows = queries.every_record(spark.readStream, source, options.source)
    rows = _chosen(spark, rows, options).observe("written", spark_functions.count("*").alias("records"))
    sink = rows.writeStream.format(target.format).options(**target.options, topic=options.target)
    query = sink.option("checkpointLocation", options.checkpoint).trigger(availableNow=True).start()
    with queries.losses_reported(queries.OTHER_CHECKPOINT):
        query.awaitTermination()
    observed = (progress.observedMetrics.get("written") for progress in query.recentProgress)
    return sum(int(row["records"]) for row in observed if row is not None)


def _chosen(spark: SparkSession, source: DataFrame, options: ReplayOptions) -> DataFrame:
    # `selectExpr` takes each expression as a string, but `select` is a list in SQL. `spark.sql` formats its
    # text, so braces are doubled.
    select = options.select.replace("{", "{{").replace("}", "}}")
    return spark.sql(f"SELECT {select} FROM {{rows}}", rows=source.where(options.where))  # noqa: S608 (the user's own)
