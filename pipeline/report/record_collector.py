"""Numbers collected from records of any source with Kafka's schema: less than files have, but from brokers, too.

Spark counts by itself, in one reading: by second, and by bins of sizes. Seconds are then put together, so that what
comes back is as small as what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr

from topicfs.pipeline.report.histograms import MAX_BUCKETS, WIDTHS, Amount, SizeHistogram, TimeHistogram
from topicfs.pipeline.report.numbers import PartitionNumbers
from topicfs.storage.model import TopicPartition

_SECOND = WIDTHS.index(1000)
_BY_TIME, _BY_KEY, _BY_VALUE = 0b011, 0b101, 0b110
"""`grouping_id` of the three ways of counting: a bit for each column that is not grouped by."""


def _bin(size: str) -> str:
    """Return `histograms.bins_of` as SQL; -1 for null stays."""
    return (
        f"IF({size} < 8, {size}, 4 * (length(bin({size})) - 3) + shiftright({size}, length(bin({size})) - 3))"
    )


def collect_records(records: DataFrame) -> list[PartitionNumbers]:
    """Read all records (once) and count them; one a partition that has any."""
    plain = records.selectExpr(
        "topic",
        "partition",
        "timestampType = 1 AS stamped",
        "unix_millis(timestamp) AS time",
        "bigint(coalesce(octet_length(key), -1)) AS key",
        "bigint(coalesce(octet_length(value), -1)) AS value",
    ).selectExpr(
        "*",
        "IF(time = -1, NULL, floor(time / 1000)) AS second",
        f"bigint({_bin('key')}) AS key_bin",
        f"bigint({_bin('value')}) AS value_bin",
    )
    partition = [col("topic"), col("partition")]
    counted = (
        plain.groupingSets(
            [
                [*partition, col("second")],
                [*partition, col("key_bin")],
                [*partition, col("value_bin")],
            ],
            *partition,
            col("second"),
            col("key_bin"),
            col("value_bin"),
        )
        .agg(
            expr("grouping_id(topic, partition, second, key_bin, value_bin)").alias("way"),
            expr("count(*)").alias("records"),
            expr("sum(greatest(key, 0) + greatest(value, 0))").alias("bytes"),
            *(
                expr(f"{how}({what})").alias(f"{how}_{what}")
                for how in ("sum", "min", "max")
                for what in ("key", "value")
            ),
            expr("min(time)").alias("first_time"),
            expr("max(time)").alias("last_time"),
            expr("count_if(stamped)").alias("stamped"),
        )
        .persist()
    )
    try:
        return _numbers(counted)
    finally:
        counted.unpersist()


def _numbers(counted: DataFrame) -> list[PartitionNumbers]:
    found: dict[TopicPartition, PartitionNumbers] = {}
    for row in counted.where(f"way IN ({_BY_KEY}, {_BY_VALUE})").toArrow().to_pylist():
        partition = TopicPartition(row["topic"], row["partition"])
        numbers = found.setdefault(partition, PartitionNumbers(partition))
        if row["way"] == _BY_KEY:
            numbers.null_keys += _add(numbers.keys, row, "key")
        else:
            numbers.records += row["records"]
            numbers.null_values += _add(numbers.values, row, "value")
    seconds = counted.where(f"way = {_BY_TIME}")
    levels = _add_times(seconds, found)
    for row in _put_together(seconds, levels).toArrow().to_pylist():
        times = found[TopicPartition(row["topic"], row["partition"])].times
        times.merge(
            TimeHistogram(WIDTHS.index(row["width"]), {row["bucket"]: Amount(row["records"], row["bytes"])})
        )
    return [found[partition] for partition in sorted(found)]


def _add(histogram: SizeHistogram, row: dict[str, int], what: str) -> int:
    """Add a bin; return the number of nulls that it stands for instead."""
    number = row[f"{what}_bin"]
    if number < 0:
        return row["records"]
    histogram.merge(
        SizeHistogram(
            row["records"],
            row[f"sum_{what}"],
            row[f"min_{what}"],
            row[f"max_{what}"],
            {number: row["records"]},
        )
    )
    return 0


def _add_times(
    seconds: DataFrame, found: dict[TopicPartition, PartitionNumbers]
) -> list[tuple[str, int, int]]:
    """Add what is known of all seconds together; return widths of buckets with which there are not too many."""
    widths = []
    spans = seconds.groupBy("topic", "partition").agg(
        expr("min(IF(second IS NULL, NULL, first_time))").alias("first"),
        expr("max(IF(second IS NULL, NULL, last_time))").alias("last"),
        expr("sum(IF(second IS NULL, records, 0))").alias("untimed"),
        expr("sum(stamped)").alias("stamped"),
    )
    for row in spans.toArrow().to_pylist():
        numbers = found[TopicPartition(row["topic"], row["partition"])]
        numbers.span(row["first"], row["last"])
        numbers.untimed_records += row["untimed"]
        numbers.stamped_records += row["stamped"]
        if row["first"] is not None:
            widths.append((row["topic"], row["partition"], _width(row["last"] - row["first"])))
    return widths


def _width(span_ms: int) -> int:
    return next(width for width in WIDTHS[_SECOND:] if span_ms / width < MAX_BUCKETS - 1)


def _put_together(seconds: DataFrame, widths: Iterable[tuple[str, int, int]]) -> DataFrame:
    known = seconds.sparkSession.createDataFrame(list(widths), "topic string, partition int, width bigint")
    return (
        seconds.where("second IS NOT NULL")
        .join(known, ["topic", "partition"])
        .selectExpr(
            "topic", "partition", "width", "floor(second * 1000 / width) AS bucket", "records", "bytes"
        )
        .groupBy("topic", "partition", "width", "bucket")
        .agg(expr("sum(records)").alias("records"), expr("sum(bytes)").alias("bytes"))
    )
