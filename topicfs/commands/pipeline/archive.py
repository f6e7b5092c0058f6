"""`topicfs pipeline archive`: topics to Parquet, or to an Iceberg table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.examples import ExampleCommand
from topicfs.jobs.commit_group import commit_group_option, commit_positions
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
            "topicfs pipeline archive 'orders-*' ./lake --format iceberg --continuous",
            "an Iceberg table, kept up to date",
        ),
        (
            "topicfs pipeline archive orders ./archive --commit-group archive",
            "and `topicfs groups describe archive` shows how far it is behind",
        ),
    ),
)
@click.argument("topics", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="ARCHIVE", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Parquet files, or an Iceberg table of them, topicfs.records.",
)
@click.option("--continuous", is_flag=True, help="Go on as records come, until ^C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="With --continuous: the time between two rounds.",
)
@commit_group_option
@place_option
def archive(
    topics: str,
    *,
    target: Path,
    kind: str,
    continuous: bool,
    interval: float,
    commit_group: str | None,
    place: SparkPlace,
) -> None:
    """Archive TOPICs to Parquet files in ARCHIVE, a folder a topic and date, with all of their columns.

    A TOPIC may be a pattern as a shell has them, in quotes; later runs archive the topics that match it by then. Run
    again it archives what came since, each record once, wherever a run was interrupted. Many small files of a date are
    merged. It prints what the archive holds: topic, date, partition, first offset and number of records.
    """
    from topicfs.pipeline.archiving.listed import CHECKPOINT

    checkpoint = target.absolute() / CHECKPOINT
    wild = not {"*", "?", "["}.isdisjoint(topics)
    place = found(place, "" if wild else topics, checkpoint=checkpoint)

    def job(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.archive import ArchiveOptions
        from topicfs.pipeline.jobs.archive import archive as run

        options = ArchiveOptions(
            path=place,
            topics=topics,
            target=target,
            format=kind,
            every_seconds=interval if continuous else None,
            committed=partial(commit_positions, place, commit_group),
        )
        return run(session, options)

    run_job(job)
