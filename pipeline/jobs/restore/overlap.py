"""Comparison of a topic's records with an archive's at the same offsets."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as spark_functions

from topicfs.pipeline.jobs.restore.plan import MOST_RANGES, ConflictError, Span
from topicfs.pipeline.places.place import SparkPlace
from topicfs.storage.model import TopicPartition

PLACE = ["topic", "partition", "offset"]
COMPARED = ("key", "value", "timestamp", "timestampType", "headers")


def check_same(
    spark: SparkSession,
    archived: DataFrame,
    place: SparkPlace,
    spans: Mapping[TopicPartition, Span],
    compacted: Collection[str],
) -> None:
    """Check that archive and topics have the same records within the spans (ConflictError names the first difference).

    Of the `compacted` topics records may be missing.
    """
    if not spans:
        return
    topics = ",".join(sorted({one.topic for one in spans}))
    here = (
        spark.read.format(place.format)
        .options(**place.options, subscribe=topics, includeHeaders="true")
        .load()
    )
    both = (
        within(spark, archived, spans)
        .select(*PLACE, *COMPARED, spark_functions.lit(True).alias("there"))
        .alias("archive")
        .join(
            within(spark, here, spans)
            .select(*PLACE, *COMPARED, spark_functions.lit(True).alias("there"))
            .alias("topic"),
            PLACE,
            "full_outer",
        )
    )
    different = [
        (~_of("archive", name).eqNullSafe(_of("topic", name))).alias(name) for name in (*COMPARED, "there")
    ]
    missing = _of("archive", "there").isNull().alias("only_here")
    taken_out = _of("topic", "there").isNull() & spark_functions.col("topic").isin(*compacted)
    found = (
        both.where(~taken_out)
        .select(*PLACE, *different, missing)
        .where(reduce(operator.or_, (spark_functions.col(name) for name in (*COMPARED, "there"))))
        .orderBy(*PLACE)
        .first()
    )
    if found is not None:
        raise ConflictError(_difference(found))


def within(spark: SparkSession, rows: DataFrame, spans: Mapping[TopicPartition, Span]) -> DataFrame:
    """Return the rows that lie in the spans."""
    if len(spans) <= MOST_RANGES:
        column = spark_functions.col
        return rows.where(
            reduce(
                operator.or_,
                (
                    (column("topic") == one.topic)
                    & (column("partition") == one.partition)
                    & (column("offset") >= span.start)
                    & (column("offset") < span.end)
                    for one, span in spans.items()
                ),
            )
        )
    listed = spark.createDataFrame(
        [(*one, *span) for one, span in spans.items()],
        "topic string, partition int, span_start long, span_end long",
    )
    return (
        rows.join(spark_functions.broadcast(listed), ["topic", "partition"])
        .where("offset >= span_start AND offset < span_end")
        .drop("span_start", "span_end")
    )


def _of(side: str, name: str) -> Column:
    return spark_functions.col(f"{side}.{name}")


def _difference(found: Row) -> str:
    where = f"{found.topic}-{found.partition}: offset {found.offset}"
    if found.there:
        only = "the topic" if found.only_here else "the archive"
        return f"{where} is in {only} alone; restore into another topic, or delete this one first"
    names = ", ".join(name for name in COMPARED if found[name])
    return f"{where} is another record in the archive ({names}); restore into another topic, or delete this one first"
