"""`topicfs pipeline archive`: topics to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.data_directory import data_option, require_directories
from topicfs.examples import ExampleCommand
from topicfs.pipelining.running import path_of, run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@click.command(
    cls=ExampleCommand,
    short_help="Topics to Parquet, by date.",
    examples=(
        ("topicfs pipeline archive orders ./archive", "what came since the last time, each record once"),
    ),
)
@click.argument("topics", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="ARCHIVE", type=click.Path(path_type=Path, file_okay=False))
@data_option
def archive(topics: str, *, target: Path, directories: tuple[Path, ...]) -> None:
    """Archive TOPICs to Parquet files in ARCHIVE, a folder a topic and date, with all of their columns.

    Run again it archives what came since, each record once, wherever a run was interrupted. It prints what the archive
    holds: topic, date, partition, first offset and number of records.
    """
    require_directories(directories)

    def job(session: SparkSession) -> DataFrame:
        from pipeline.jobs.archive import ArchiveOptions, archive as run  # noqa: I001, PLC0415 (needs Spark)

        return run(session, ArchiveOptions(path=path_of(directories), topics=topics, target=target))

    run_job(job)
