"""`topicfs pipeline archive`: topics to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.examples import ExampleCommand
from topicfs.jobs.commit_group import commit_group_option, commit_progress
from topicfs.jobs.places import found, place_option
from topicfs.jobs.run import run_job
from topicfs.pipeline.places.place import SparkPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@click.command(
    cls=ExampleCommand,
    short_help="Topics to Parquet, by date.",
    examples=(
        ("topicfs pipeline archive orders ./archive", "what came since the last time, each record once"),
        ("topicfs pipeline archive orders ./archive --data kafka://host:9092", "of a Kafka cluster"),
        (
            "topicfs pipeline archive orders ./archive --commit-group archive",
            "and `topicfs groups describe archive` shows how far it is behind",
        ),
    ),
)
@click.argument("topics", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="ARCHIVE", type=click.Path(path_type=Path, file_okay=False))
@commit_group_option
@place_option
def archive(topics: str, *, target: Path, commit_group: str | None, place: SparkPlace) -> None:
    """Archive TOPICs to Parquet files in ARCHIVE, a folder a topic and date, with all of their columns.

    Run again it archives what came since, each record once, wherever a run was interrupted. It prints what the archive
    holds: topic, date, partition, first offset and number of records.
    """
    from topicfs.pipeline.archives.files import CHECKPOINT  # noqa: PLC0415 (here alone)

    checkpoint = target.absolute() / CHECKPOINT
    place = found(place, topics, checkpoint=checkpoint)

    def job(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.archive import ArchiveOptions, archive as run  # noqa: I001, PLC0415 (needs Spark)

        return run(session, ArchiveOptions(path=place, topics=topics, target=target))

    run_job(job, places=[place])
    commit_progress(place, commit_group, checkpoint)
