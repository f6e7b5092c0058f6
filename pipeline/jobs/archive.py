"""Topics to Parquet, a folder a topic and date: incremental, and each record once however often it is run.

    TARGET/topic=orders/date=2026-01-02/part-….parquet        all of Kafka's columns, the headers too
    TARGET/_checkpoint/  TARGET/_spark_metadata/              how far it came, and which files count
    TARGET/_topics.json                                       its topics, with partitions and settings

The date is that of the record's timestamp, in UTC. Records of transactions that were aborted are not archived, those of
open ones not yet.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from topicfs import pipeline
from topicfs.pipeline.archives.files import CHECKPOINT
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.jobs.archive_files import TopicNote, archived_rows, read_notes, write_notes
from topicfs.pipeline.jobs.queries import every_record, losses_reported
from topicfs.pipeline.places.paths import data_directories
from topicfs.pipeline.places.place import SparkPlace, place_of
from topicfs.pipeline.sink.layout import broker_settings, read_topics
from topicfs.pipeline.tasks.output import FOR_PEOPLE
from topicfs.storage.errors import ClusterError
from topicfs.storage.handover.cluster import KafkaCluster

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Options of an archive."""

    path: str | SparkPlace
    """Data directories, or a Kafka cluster (`pipeline.places.place`)."""
    topics: str
    """Separated by commas."""
    target: Path
    """The archive: a directory of its own."""


def archive(spark: SparkSession, options: ArchiveOptions) -> DataFrame:
    """Archive what came since the last run; return the archive's contents, one row a topic, date and partition."""
    pipeline.register(spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    place = place_of(options.path)
    archive_folder = options.target.absolute()
    names = {one.strip() for one in options.topics.split(",")}
    _check_topics(archive_folder, names)
    # Before the first record: a run that is killed leaves an archive, too.
    archive_folder.mkdir(parents=True, exist_ok=True)
    write_notes(archive_folder, _notes(place, names))
    source = every_record(spark.readStream, place, options.topics)
    target = str(archive_folder)
    query = (
        source.selectExpr("*", "to_date(timestamp) AS date")
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("checkpointLocation", f"{target}/{CHECKPOINT}")
        .trigger(availableNow=True)
        .start(target)
    )
    with losses_reported("this archive stays as it is; archive what is there now into another directory"):
        query.awaitTermination()
    archived = archived_rows(spark, archive_folder)
    counted = archived.groupBy("topic", "date", "partition").agg({"offset": "min", "*": "count"})
    return counted.selectExpr(
        "topic", "date", "partition", "`min(offset)` AS first_offset", "`count(1)` AS records"
    ).orderBy("topic", "date", "partition")


def _check_topics(archive: Path, names: set[str]) -> None:
    """Raise PipelineError for an archive of other topics, which would lose its place in them."""
    others = read_notes(archive).keys() - names
    if others:
        raise PipelineError(
            f"{archive}: is the archive of {', '.join(sorted(others))}, too; name all of its topics, or another archive"
        )


def _notes(place: SparkPlace, names: set[str]) -> dict[str, TopicNote]:
    """Return partitions and settings of the topics, which records do not have."""
    if place.bootstrap_servers is not None:
        return _notes_of_cluster(place, place.bootstrap_servers, names)
    directories = data_directories(place.path or "")
    settings = broker_settings(directories)
    return {
        name: TopicNote(facts.partitions[-1] + 1, facts.overrides or settings.get(name, {}))
        for name, facts in read_topics(directories).items()
        if name in names
    }


def _notes_of_cluster(place: SparkPlace, servers: str, names: set[str]) -> dict[str, TopicNote]:
    try:
        cluster = KafkaCluster(servers, place.library_options())
        found = {name: cluster.find_topic(name) for name in sorted(names)}
        return {name: TopicNote(one.partitions, cluster.settings(name)) for name, one in found.items() if one}
    except ClusterError as error:
        _LOGGER.warning("%spartitions and settings of the topics are not archived: %s", FOR_PEOPLE, error)
        return {}
