"""`topicfs pipeline`: jobs over whole topics, run by Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.session import local_session
from storage.errors import StorageError
from topicfs.data_directory import data_option, require_directories
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.terminal import is_terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class JobFailedError(StorageError):
    """Spark gave up: with the line that tells why."""


@click.group(
    cls=ExampleGroup,
    short_help="Jobs over whole topics, run by Spark.",
    examples=(
        (
            "topicfs pipeline archive orders,clicks ./archive",
            "two topics to Parquet, by date; again: what came since",
        ),
        ("topicfs pipeline replay orders copy", "every record of a topic into another"),
        (
            "topicfs pipeline replay orders late --where \"key = 'late'\"",
            "some of them, chosen by SQL",
        ),
    ),
)
def pipeline() -> None:
    """Run a job over whole topics with Spark, here on this machine.

    It needs the extra: pip install 'topicfs[spark]', and Java. A running daemon is not disturbed; what a job writes to
    topics goes through it.
    """


@pipeline.command(
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
    with local_session(show_progress=is_terminal()) as session:
        from pipeline.jobs.archive import ArchiveOptions, archive as run  # noqa: I001, PLC0415 (needs Spark)

        _print(lambda: run(session, ArchiveOptions(path=_path(directories), topics=topics, target=target)))


@pipeline.command(
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
    with local_session(show_progress=is_terminal()) as session:
        from pipeline.jobs.replay import ReplayOptions, replay as run  # noqa: I001, PLC0415 (needs Spark)

        options = ReplayOptions(
            path=_path(directories),
            source=source,
            target=target,
            where=where,
            select=select,
            checkpoint=str(checkpoint.absolute()) if checkpoint else None,
        )
        _print(lambda: run(session, options))


def _path(directories: Sequence[Path]) -> str:
    return ",".join(str(directory.absolute()) for directory in directories)


def _print(job: Callable[[], DataFrame]) -> None:
    """Run a job and print its rows, one a line, fields separated by tabs."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 (needs Spark)

    try:
        rows = job().collect()
    except PySparkException as error:
        raise JobFailedError(_cause(str(error))) from error
    for row in rows:
        click.echo("\t".join(str(field) for field in row))


def _cause(text: str) -> str:
    """The line of Spark's error that says what is wrong: that of our own error in a traceback, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [
        line for line in lines if line.startswith(("pipeline.errors.", "storage.errors.", "storage.staging."))
    ]
    return own[-1].partition(": ")[2] if own else lines[0]
