"""`topicfs pipeline replay`: topic to topic."""

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
    short_help="Topic to topic, through SQL.",
    examples=(
        ("topicfs pipeline replay orders copy", "everything, once: all of it or nothing"),
        ("topicfs pipeline replay orders copy --checkpoint ./progress", "what came since the last time"),
        ("topicfs pipeline replay orders upper --select 'key, upper(value) AS value'", "with other values"),
    ),
)
@click.argument("source", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="TARGET")
@click.option("--where", default="true", metavar="SQL", help="A condition over the source's columns.")
@click.option(
    "--select",
    default="key, value, headers, timestamp",
    show_default=True,
    metavar="SQL",
    help="Expressions that make the columns to be written.",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Remember in DIR how far it came, and bring only what came since.",
)
@data_option
def replay(  # noqa: PLR0913 (one a word of the command line)
    source: str,
    *,
    target: str,
    where: str,
    select: str,
    checkpoint: Path | None,
    directories: tuple[Path, ...],
) -> None:
    """Append the records of TOPICs to the topic TARGET, which must be there, through a SQL filter and projection.

    Keys choose partitions as in Kafka. Prints source, target and the number of records.
    """
    require_directories(directories)

    def job(session: SparkSession) -> DataFrame:
        from pipeline.jobs.replay import ReplayOptions, replay as run  # noqa: I001, PLC0415 (needs Spark)

        options = ReplayOptions(
            path=path_of(directories),
            source=source,
            target=target,
            where=where,
            select=select,
            checkpoint=str(checkpoint.absolute()) if checkpoint else None,
        )
        return run(session, options)

    run_job(job)
