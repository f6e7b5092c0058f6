"""Restores an archive into topics, with offsets, times, timestamp types, keys, values and headers as they were.

Each topic must be missing, be empty, or begin with the same records, so that a second run continues an interrupted
run. Records are written in rounds; each round writes all its records or none. A Kafka cluster assigns offsets itself,
so restoring to a cluster keeps only order and times, and requires `without_offsets`.
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as spark_functions

from topicfs import pipeline
from topicfs.pipeline.archiving.files import archived_files
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.archive import TopicNote, archived_rows, average_bytes, read_notes
from topicfs.pipeline.jobs.restore import plan
from topicfs.pipeline.jobs.restore.cluster_write import check_cluster, write_to_cluster
from topicfs.pipeline.jobs.restore.directory_write import PlacedWrite, make_topics, write_placed
from topicfs.pipeline.places.place import SparkPlace, place_of
from topicfs.storage.disk.names import check_topic_name
from topicfs.storage.disk.native import system_clock
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.staging.area import WriteRefusedError
from topicfs.storage.staging.manifest import LogPlacement, Placement

RESULT = "topic string, partition int, first_offset long, last_offset long, restored long, already_there long"
RESTORE_ROUND_BYTES = 256 << 20
"""Approximate bytes of keys, values and headers that a round stages on disk, in addition to the logs."""
ATTEMPTS = 8
RETRY_PAUSE_SECONDS = 1.0
"""Seconds before the next attempt, because a daemon checkpoints the ends of its logs only every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    archive: Path
    path: str | SparkPlace
    """Data directories, or a Kafka cluster (`pipeline.places.place`)."""
    topics: str | None = None
    """Topic names, separated by commas; None: all topics of the archive."""
    into: str | None = None
    """New name of the topic, if only one topic is restored."""
    partitions: int | None = None
    """Smallest number of partitions of topics that the job creates. None: as many partitions as the topic had."""
    without_offsets: bool = False
    """True to allow new offsets, which a Kafka cluster assigns."""
    commit_timeout_seconds: float = 300.0
    """Longest time to wait until the owner of the directories claims a round."""
    round_bytes: int = RESTORE_ROUND_BYTES


def restore(spark: SparkSession, options: RestoreOptions) -> DataFrame:
    """Restore the missing records; return, for each partition, how many were restored and how many already existed."""
    pipeline.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    place = place_of(options.path)
    if place.is_kafka:
        return _restore_to_cluster(spark, options, place)
    if place.without:
        raise PipelineError("remove the option without; restore into a directory without replicas")
    restoration = _Restoration(spark, options, place)
    for attempt in range(ATTEMPTS):
        try:
            restoration.restore_missing()
            break
        except WriteRefusedError:
            # Other records were appended meanwhile, perhaps by an earlier run that was interrupted.
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(RETRY_PAUSE_SECONDS)
    return restoration.result()


def _restore_to_cluster(spark: SparkSession, options: RestoreOptions, place: SparkPlace) -> DataFrame:
    """Append every record to topics of a cluster, which must exist and be empty."""
    if not options.without_offsets:
        raise PipelineError(
            f"{place}: a cluster assigns its own offsets; use --without-offsets to restore without the old offsets"
        )
    rows = _chosen(archived_rows(spark, options.archive.absolute()), options)
    extents = _extents(rows)
    write_to_cluster(rows, place, check_cluster(place, extents))
    return _result(spark, extents, Counter({one: extent.records for one, extent in extents.items()}))


class _Restoration:
    """A run of the job that restores into data directories."""

    def __init__(self, spark: SparkSession, options: RestoreOptions, place: SparkPlace) -> None:
        self._spark = spark
        self._options = options
        self._place = place
        self._directories = place.directories
        archive = options.archive.absolute()
        self._rows = _chosen(archived_rows(spark, archive), options)
        self._extents = _extents(self._rows)
        self._notes = _renamed(read_notes(archive), options)
        if not self._extents and not self._notes:
            raise PipelineError(f"{archive}: the archive has no records")
        self._empty = _without_records(self._notes, self._extents, options)
        self._round_records = max(1, options.round_bytes // average_bytes(archived_files(archive)))
        self._restored: Counter[TopicPartition] = Counter()

    def restore_missing(self) -> None:
        """Write the records that are missing now. Raises ConflictError, WriteRefusedError, CommitTimeoutError."""
        known = plan.known_topics(self._directories)
        extents = self._extents
        made = plan.topics_to_make(
            extents, known, self._notes, partitions=self._options.partitions, now_ms=system_clock()
        )
        made |= plan.empty_topics(
            self._empty - known.keys(), self._notes, partitions=self._options.partitions
        )
        bounds = plan.log_bounds(self._directories, extents, known)
        parts = {one: plan.plan_partition(one, extents[one], bounds[one]) for one in extents}
        compacted = [topic for topic, facts in known.items() if facts.config.compacts]
        check_same(self._spark, self._rows, self._place, plan.overlaps(parts), compacted)
        topics = sorted({one.topic for one in extents})
        write = PlacedWrite(
            self._directories, plan.layouts_of(topics, known, made), self._options.commit_timeout_seconds
        )
        places = {one: part.place for one, part in parts.items()}
        rounds = plan.plan_rounds(parts, extents, self._round_records)
        if made and not rounds:
            make_topics(write, Placement(made, {}))
        for spans in rounds:
            rows = within(self._spark, self._rows, spans)
            placement = Placement(made, {one: places[one] for one in spans})
            for one, written in write_placed(rows, write, placement, records=self._round_records).items():
                places[one] = LogPlacement(Offset(written.last + 1))
                self._restored[one] += written.records

    def result(self) -> DataFrame:
        empty = [
            (topic, number, None, None, 0, 0)
            for topic in sorted(self._empty)
            for number in range(self._notes[topic].partitions)
        ]
        return _result(self._spark, self._extents, self._restored, empty)


def _without_records(
    notes: Mapping[str, TopicNote], extents: Mapping[TopicPartition, plan.Extent], options: RestoreOptions
) -> set[str]:
    """Return the requested topics that are in the archive's notes but have no records in the archive."""
    asked = (
        notes.keys()
        if options.topics is None or options.into is not None
        else notes.keys() & _names(options.topics)
    )
    return set(asked) - {one.topic for one in extents}


def _result(
    spark: SparkSession,
    extents: Mapping[TopicPartition, plan.Extent],
    restored: Mapping[TopicPartition, int],
    empty: Sequence[tuple[object, ...]] = (),
) -> DataFrame:
    rows: list[tuple[object, ...]] = [
        (*one, extent.first, extent.last, restored.get(one, 0), extent.records - restored.get(one, 0))
        for one, extent in sorted(extents.items())
    ]
    return spark.createDataFrame([*rows, *empty], RESULT)


def _names(topics: str) -> set[str]:
    return {one.strip() for one in topics.split(",") if one.strip()}


def _chosen(rows: DataFrame, options: RestoreOptions) -> DataFrame:
    """Return the rows of the requested topics. If `into` is set, it replaces the name of the topic."""
    if options.topics is not None:
        asked = _names(options.topics)
        rows = rows.where(spark_functions.col("topic").isin(sorted(asked)))
        known = read_notes(options.archive.absolute()).keys()
        missing = asked - {row.topic for row in rows.select("topic").distinct().collect()} - known
        if missing:
            raise PipelineError(f"{options.archive}: has no records of {', '.join(sorted(missing))}")
    if options.into is not None:
        if options.topics is None or "," in options.topics:
            raise PipelineError(f"into {options.into}: name exactly one topic to restore under this name")
        check_topic_name(options.into)
        rows = rows.withColumn("topic", spark_functions.lit(options.into))
    return rows


def _renamed(notes: dict[str, TopicNote], options: RestoreOptions) -> dict[str, TopicNote]:
    if options.into is None or options.topics is None:
        return notes
    note = notes.get(options.topics.strip())
    return {} if note is None else {options.into: note}


def _extents(rows: DataFrame) -> dict[TopicPartition, plan.Extent]:
    found = (
        rows.groupBy("topic", "partition")
        .agg(
            spark_functions.min("offset").alias("first"),
            spark_functions.max("offset").alias("last"),
            spark_functions.count("*").alias("records"),
            spark_functions.min("timestamp").alias("oldest"),
        )
        .selectExpr("topic", "partition", "first", "last", "records", "unix_millis(oldest) AS oldest_ms")
    )
    return {
        TopicPartition(row.topic, row.partition): plan.Extent(
            row.first, row["last"], row.records, row.oldest_ms
        )
        for row in found.collect()
    }


PLACE = ["topic", "partition", "offset"]
COMPARED = ("key", "value", "timestamp", "timestampType", "headers")


def check_same(
    spark: SparkSession,
    archived: DataFrame,
    place: SparkPlace,
    spans: Mapping[TopicPartition, plan.Span],
    compacted: Collection[str],
) -> None:
    """Check that archive and topics agree within `spans`; `compacted` topics may lack records. Raises ConflictError."""
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
        raise plan.ConflictError(_difference(found))


def within(spark: SparkSession, rows: DataFrame, spans: Mapping[TopicPartition, plan.Span]) -> DataFrame:
    """Return the rows whose offsets lie in `spans`."""
    if len(spans) <= plan.MAX_RANGES:
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
        return f"{where} is only in {only}; restore into another topic, or delete this one first"
    names = ", ".join(name for name in COMPARED if found[name])
    return f"{where} has another record in the archive ({names}); restore into another topic, or delete this one first"
