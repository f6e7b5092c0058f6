"""Counts of windows of time, topic to topic: once over everything, or incrementally under a checkpoint.

The time is the records' own. A result is a record too:

    key        the group; null without one, or where it is null
    value      {"start": "2026-01-02T10:00:00.000Z", "end": "…", "group": "ada", "count": 42, …}
    timestamp  the start of the window

The start, because it lies within the window: an hour's counts added up from those of its minutes, or archived by date,
come to the hour and the date that the records themselves belong to; the end is the first moment that does not.

At once, every window comes out. Under a checkpoint a window comes out when the watermark, the latest time seen less the
delay, has passed its end; records that come later still are left out. The last windows wait for a later record, or for
a run with `close`. Each result is written once, wherever a run was interrupted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from topicfs import pipeline
from topicfs.pipeline.errors import InvalidOptionError
from topicfs.pipeline.jobs.queries import (
    OTHER_CHECKPOINT,
    QueryOptions,
    every_record,
    losses_reported,
    write_counted,
)
from topicfs.pipeline.source.readers import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from topicfs.pipeline.tasks.output import MESSAGE_PREFIX

RESULT = "source string, target string, windows long"
RESERVED = ("start", "end", "group", "count")
"""Fields of every value; other aggregates need other names."""
PARTS, SPARKS_PARTS = "spark.sql.shuffle.partitions", "200"
"""Into how many parts windows are split. What the first run under a checkpoint had stays."""
POLL_S = 1
"""Seconds between two checks for ^C while a query runs."""

_LOGGER = logging.getLogger(__name__)
_NAMED = re.compile(r"(?is).*\s+AS\s+(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*")


class _MicroBatch(NamedTuple):
    """The result of a micro-batch."""

    windows: int
    """Results that it wrote."""
    late: int
    """Results that it left out, for their windows were over: Spark counts them when a batch's records are added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateOptions(QueryOptions):
    window: str
    """Its length as Spark writes it: `5 minutes`."""
    slide: str | None = None
    """Distance between the starts of windows; None: they follow one another."""
    group: str | None = None
    """A SQL expression; None: each window has one count."""
    aggregates: tuple[str, ...] = ()
    """More of them in SQL, each with a name: `sum(length(value)) AS bytes`."""
    delay: str = "0 seconds"
    """Longest delay of a record; it matters only with a checkpoint."""
    close: bool = False
    """Write the windows that are open, too, for nothing more will come; needs a checkpoint."""
    continuous: bool = False
    """Go on until interrupted; needs a checkpoint."""
    interval: str = "5 seconds"
    """Between the micro-batches of a run that goes on."""


def aggregate(spark: SparkSession, options: AggregateOptions) -> DataFrame:
    """Run the aggregation; return one row with the number of results written (InvalidOptionError; Spark's own for bad SQL)."""
    _check(options)
    pipeline.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    windows = _follow(spark, options) if options.checkpoint else _at_once(spark, options)
    return spark.createDataFrame([(options.source, options.target, windows)], RESULT)


def _at_once(spark: SparkSession, options: AggregateOptions) -> int:
    source, target = options.places()
    rows = every_record(spark.read, source, options.source)
    results = _results(_windows(rows, options)).orderBy("timestamp", "key")
    return write_counted(results, target, topic=options.target)


def _follow(spark: SparkSession, options: AggregateOptions) -> int:
    source, target = options.places()
    _keep_state_together(spark)
    rows = every_record(spark.readStream, source, options.source)
    results = _results(_windows(_timed(spark, rows, options), options))
    counted = results.observe("written", spark_functions.count("*").alias("windows"))
    sink = counted.writeStream.format(target.format).options(**target.options, topic=options.target)
    return _run(_triggered(sink.outputMode("append"), options))


def _keep_state_together(spark: SparkSession) -> None:
    """Split the open windows as the machines are, not Spark's 200 times: each part is a file or two a micro-batch."""
    if spark.conf.get(PARTS, SPARKS_PARTS) == SPARKS_PARTS:
        spark.conf.set(PARTS, str(spark.sparkContext.defaultParallelism))


def _timed(spark: SparkSession, rows: DataFrame, options: AggregateOptions) -> DataFrame:
    """Return the rows with a watermark that the clock, too, moves on."""
    spark.dataSource.register(ClockSource)
    until = _after_the_last_window(spark, options) if options.close else 0
    ticks = spark.readStream.format(CLOCK).option(UNTIL, str(until)).load()
    both = rows.unionByName(ticks, allowMissingColumns=True).withWatermark("timestamp", options.delay)
    # It names the time, too: a condition that does not Spark would ask before the watermark has seen the row.
    return both.where("topic IS NOT NULL OR timestamp IS NULL")


def _after_the_last_window(spark: SparkSession, options: AggregateOptions) -> int:
    """Return the microseconds since 1970 at which the watermark has passed every window that a record at `time` is in."""
    source, _ = options.places()
    rows = every_record(spark.read, source, options.source)
    window, delay = (
        spark_functions.lit(length).cast("interval") for length in (options.window, options.delay)
    )
    end = spark_functions.max("timestamp") + window + delay
    found = rows.where(options.where).select(spark_functions.unix_micros(end).alias("until")).first()
    return 0 if found is None or found.until is None else int(found.until)


def _triggered(sink: DataStreamWriter, options: AggregateOptions) -> DataStreamWriter:
    assert options.checkpoint is not None
    sink = sink.option("checkpointLocation", options.checkpoint)
    return (
        sink.trigger(processingTime=options.interval)
        if options.continuous
        else sink.trigger(availableNow=True)
    )


def _run(sink: DataStreamWriter) -> int:
    """Run a query to its end, or to ^C, which ends it in order; the results that it wrote."""
    query = sink.start()
    batches: dict[int, _MicroBatch] = {}
    try:
        with losses_reported(OTHER_CHECKPOINT):
            while not query.awaitTermination(POLL_S):
                _record_progress(query, batches)
    except KeyboardInterrupt:
        query.stop()
    _record_progress(query, batches)
    late = sum(batch.late for batch in batches.values())
    if late:
        _LOGGER.warning(
            "%sat least %d late records were left out: the windows they belong to had been written (--delay says how late "
            "records may come)",
            MESSAGE_PREFIX,
            late,
        )
    return sum(batch.windows for batch in batches.values())


def _record_progress(query: StreamingQuery, batches: dict[int, _MicroBatch]) -> None:
    """Note what micro-batches wrote; a query remembers only its last hundred."""
    for progress in query.recentProgress:
        observed = progress.observedMetrics.get("written")
        if observed is not None:
            late = sum(one.numRowsDroppedByWatermark for one in progress.stateOperators)
            batches[progress.batchId] = _MicroBatch(int(observed["windows"]), late)


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
    """Return the windows as records."""
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
        raise InvalidOptionError("to go on, it must remember how far it came: name a checkpoint")
    if options.close and (options.checkpoint is None or options.continuous):
        raise InvalidOptionError(
            "only a run that ends, under a checkpoint, closes windows; without one all come out"
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
"""Time of the row in microseconds since 1970; a time that was reached before makes no row."""
_EPOCH = datetime.fromtimestamp(0, UTC)


class ClockSource(DataSource):
    """A stream of nothing but time: it lets the watermark of a query pass the last windows when nothing more will come.

    Spark emits a window when a later record has moved the watermark. This source, beside the records', makes one row with
    the time that its option names, and otherwise none; its offset is in the query's checkpoint, as with any source.
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
    """The reader; its offset is the time that it reached."""

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
        """Do nothing: the row is known already."""

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(end[UNTIL])] if end[UNTIL] > start[UNTIL] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (_EPOCH + timedelta(microseconds=partition.value),)
