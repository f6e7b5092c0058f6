"""Running a job: a session for it, its rows printed, and one line where it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.session import local_session
from topicfs.pipelining.causes import JobFailedError, cause
from topicfs.terminal import is_terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_job(job: Callable[[SparkSession], DataFrame]) -> None:
    """Run a job in a session of its own and print its rows (StorageError, JobFailedError).

    `job` imports what it runs: that needs Spark, which a session that could be had proves to be there.
    """
    with local_session(show_progress=is_terminal()) as session:
        from pyspark.errors import PySparkException  # noqa: PLC0415 (needs Spark)

        try:
            rows = job(session).collect()
        except PySparkException as error:
            raise JobFailedError(cause(str(error))) from error
    for row in rows:
        click.echo("\t".join(str(field) for field in row))


def path_of(directories: Sequence[Path]) -> str:
    """The data directories as the option `path` of the format."""
    return ",".join(str(directory.absolute()) for directory in directories)
