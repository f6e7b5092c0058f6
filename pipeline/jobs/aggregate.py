"""Aggregates records in windows of time, from topic to topic: all at once, or incrementally with a checkpoint.

The time is the records' timestamp. Each result is itself a record:

    key        the group; null if there is no group expression, or if its value is null
    value      {"start": "2026-01-02T10:00:00.000Z", "end": "…", "group": "ada", "count": 42, …}
    timestamp  the start of the window

The timestamp is the start because the start lies within the window, and the end does not. So results that are summed
by the hour, or archived by date, count for the hour and the date of their records.

Without a checkpoint, all windows are written. With a checkpoint, a window is written when the watermark (the latest
time seen, minus the delay) has passed the window's end. A record that arrives later for this window is left out.
The last windows wait for a later record, or for a run with `close`. Each result is written once, even if a run is
interrupted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from topicfs import pipeline
from topicfs.pipeline.errors import InvalidOptionError
from topicfs.pipeline.jobs import queries
from topicfs.pipeline.source.readers import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from topicfs.pipeline.tasks.output import MESSAGE_PREFIX

RESULT = "source string, target string, windows long"
RESERVED = ("start", "end", "group", "count")
"""Fields of every value. Additional aggregates must have other names."""
PARTS, SPARKS_PARTS = "spark.sql.shuffle.partitions", "200"
"""Setting for the number of parts of the state, and Spark's default. A checkpoint keeps the number of its first run."""
INTERRUPT_POLL_SECONDS = 1
"""Seconds between two checks for ^C while a query runs."""

_LOGGER = logging.getLogger(__name__)
_NAMED = re.compile(r"(?is).*\s+AS\s+(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateOptions(queries.QueryOptions):
    window: str
    """Length of a window, as Spark writes it: `5 minutes`."""
    slide: str | None = None
    """Distance between the starts of two windows; None: the length of a window."""
    group: str | None = None
    """SQL expression that groups the records; None: each window has one result."""
    aggregates: tuple[str, ...] = ()
    """Further aggregates in SQL, each with a name: `sum(length(value)) AS bytes`."""
    delay: str = "0 seconds"
    """How late a record may arrive; used only with a checkpoint."""
    close: bool = False
    """Also write the windows that are still open, because no more records will come; needs a checkpoint."""
    continuous: bool = False
    """Run until interrupted; needs a checkpoint."""
    interval: str = "5 seconds"
    """Time between the micro-batches of a continuous run."""


def aggregate(spark: SparkSession, options: AggregateOptions) -> DataFrame:
    """Aggregate; return a row with the number of results. Raises InvalidOptionError, and Spark's errors for bad SQL."""
    _check(options)
    pipeline.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    if options.checkpoint:
        windows = _follow(spark, options, options.checkpoint)
    else:
        source, target = options.places()
        rows = queries.every_record(spark.read, source, options.source)
        results = _results(_windows(rows, options)).orderBy("timestamp", "key")
        windows = queries.write_counted(results, target, topic=options.target)
    return spark.createDataFrame([(options.source, options.target, windows)], RESULT)


def _follow(spark: SparkSession, options: AggregateOptions, checkpoint: str) -> int:
    source, target = options.places()
    # Split the state into one part per core, instead of Spark's 200: each part writes files in every micro-batch.
    if spark.conf.get(PARTS, SPARKS_PARTS) == SPARKS_PARTS:
        spark.conf.set(PARTS, str(spark.sparkContext.defaultParallelism))
    rows = queries.every_record(spark.readStream, source, options.source)
    results = _results(_windows(_timed(spark, rows, options), options))
    counted = results.observe("written", spark_functions.count("*").alias("windows"))
    sink = counted.writeStream.format(target.format).options(**target.options, topic=options.target)
    sink = sink.outputMode("append").option("checkpointLocation", checkpoint)
    if options.continuous:
        return _run(sink.trigger(processingTime=options.interval))
    return _run(sink.trigger(availableNow=True))


def _timed(spark: SparkSession, rows: DataFrame, options: AggregateOptions) -> DataFrame:
    """Return the rows with a watermark that both the rows and `ClockSource` advance."""
    spark.dataSource.register(ClockSource)
    until = _end_of_last_window(spark, options) if options.close else 0
    ticks = spark.readStream.format(CLOCK).option(UNTIL, str(until)).load()
    both = rows.unionByName(ticks, allowMissingColumns=True).withWatermark("timestamp", options.delay)
    # This condition uses the timestamp. Otherwise Spark would evaluate it before the watermark, which would
    # then not see the row of the clock.
    return both.where("topic IS NOT NULL OR timestamp IS NULL")


def _end_of_last_window(spark: SparkSession, options: AggregateOptions) -> int:
    """Return the time that the watermark must reach to pass the last window of the latest record.

    The time is in microseconds since 1970; 0 without records.
    """
    source, _ = options.places()
    rows = queries.every_record(spark.read, source, options.source)
    window, delay = (
        spark_functions.lit(length).cast("interval") for length in (options.window, options.delay)
    )
    end = spark_functions.max("timestamp") + window + delay
    found = rows.where(options.where).select(spark_functions.unix_micros(end).alias("until")).first()
    return 0 if found is None or found.until is None else int(found.until)


def _run(sink: DataStreamWriter) -> int:
    """Run a query until it ends; return the number of results written. ^C stops the query cleanly."""
    query = sink.start()
    batches: dict[int, tuple[int, int]] = {}
    try:
        with queries.losses_reported(queries.OTHER_CHECKPOINT):
            while not query.awaitTermination(INTERRUPT_POLL_SECONDS):
                _record_progress(query, batches)
    except KeyboardInterrupt:
        query.stop()
    _record_progress(query, batches)
    late = sum(late for _, late in batches.values())
    if late:
        _LOGGER.warning(
            "%sat least %d late records were left out: the windows they belong to had been written (--delay says how late "
            "records may come)",
            MESSAGE_PREFIX,
            late,
        )
    return sum(windows for windows, _ in batches.values())


def _record_progress(query: StreamingQuery, batches: dict[int, tuple[int, int]]) -> None:
    """Add recent micro-batches to `batches`: results written, and late rows dropped. A query remembers only a hundred.

    A late row may stand for several records: Spark combines the records of a batch before it counts.
    """
    for progress in query.recentProgress:
        observed = progress.observedMetrics.get("written")
        if observed is not None:
            late = sum(one.numRowsDroppedByWatermark for one in progress.stateOperators)
            batches[progress.batchId] = int(observed["windows"]), late


def _windows(rows: DataFrame, options: AggregateOptions) -> DataFrame:
    group = spark_functions.expr(options.group or "CAST(NULL AS STRING)").alias("group")
    window = spark_functions.window("timestamp", options.window, options.slide or options.window)
    more = [spark_functions.expr(one) for one in options.aggregates]
    return (
        rows.where(options.where)
        .groupBy(window.alias("window"), group)
        .agg(spark_functions.count("*").alias("count"), *more)
    )


def _results(windows: DataFrame) -> DataFrame:
    """Return the windows as records with key, value and timestamp."""
    others = [name for name in windows.columns if name not in {"window", "group"}]
    group = spark_functions.col("group")
    shown = group.cast("string") if dict(windows.dtypes)["group"] == "binary" else group
    value = spark_functions.struct(
        spark_functions.col("window.start").alias("start"),
        spark_functions.col("window.end").alias("end"),
        shown.alias("group"),
        *others,
    )
    form = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
    return windows.select(
        (group if dict(windows.dtypes)["group"] == "binary" else group.cast("string")).alias("key"),
        spark_functions.to_json(value, form).alias("value"),
        spark_functions.col("window.start").alias("timestamp"),
    )


def _check(options: AggregateOptions) -> None:
    if options.continuous and options.checkpoint is None:
        raise InvalidOptionError(
            "name a checkpoint: a run that does not end stores there how far it has read"
        )
    if options.close and (options.checkpoint is None or options.continuous):
        raise InvalidOptionError(
            "closing windows needs a checkpoint and a run that ends; without a checkpoint all are written anyway"
        )
    for text in options.aggregates:
        match = _NAMED.fullmatch(text)
        if match is None:
            raise InvalidOptionError(f"{text}: give it a name, as in: sum(length(value)) AS bytes")
        if match["name"].lower() in RESERVED:
            raise InvalidOptionError(
                f"{text}: {match['name']} is a field of every result; choose another name"
            )


CLOCK = "topicfs_clock"
UNTIL = "until"
"""Name of the option that gives the time of the source's row, in microseconds since 1970.

The offset of the source is the time that it has reached. When it has reached the row's time, no row is left.
"""
_EPOCH = datetime.fromtimestamp(0, UTC)


class ClockSource(DataSource):
    """A source with a single row, which makes a query write its last windows when no more records come.

    Spark writes a window when a later record has moved the watermark past it. This source is read together with the
    source of the records. Its row has the time that its option gives, and moves the watermark like a record of that
    time. The query's checkpoint stores the offset of this source like the offset of any other source.
    """

    @classmethod
    def name(cls) -> str:
        return CLOCK

    def schema(self) -> str:
        return "timestamp timestamp"

    def streamReader(self, schema: StructType) -> ClockReader:
        del schema
        return ClockReader(int(self.options.get(UNTIL, "0")))


class ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a ClockSource; its offset is the time that it has reached."""

    def __init__(self, until_us: int) -> None:
        self._until_us = until_us

    def initialOffset(self) -> dict[str, int]:
        return {UNTIL: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(
        self, start: Mapping[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        del limit
        return {UNTIL: max(start[UNTIL] if start else 0, self._until_us)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the time of the row is fixed."""

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(end[UNTIL])] if end[UNTIL] > start[UNTIL] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (_EPOCH + timedelta(microseconds=partition.value),)
