"""Runs a job in a session, prints its rows, and reports a failure in one line."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from topicfs.jobs.progress_bar import ProgressBar, progress_bar
from topicfs.pipeline.errors import raised_in
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.session import SessionOptions, job_session
from topicfs.pipeline.tasks.output import important_lines
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import printable
from topicfs.terminal import console, is_terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, as_program: bool) -> None:
    """Print a job's rows: as JSON on request, as a table on a terminal, otherwise as fields separated by tabs."""
    if as_program:
        click.echo(json.dumps([dict(row) for row in rows], default=str))
    elif is_terminal():
        console().print(table(columns, rows))
    else:
        for row in rows:
            click.echo("\t".join(_plain(row[column]) for column in columns))


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with numbers aligned right and grouped by thousands."""
    made = Table(box=None, header_style="quiet", pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row[column], int | float | None) for row in rows)
        made.add_column(column.replace("_", " "), justify="right" if rows and numeric else "left")
    for row in rows:
        made.add_row(*(_for_people(row[column]) for column in columns))
    return made


def _for_people(value: Any) -> Text:
    if value is None:
        return Text("-")
    # Partitions and offsets are more like names than like amounts, but long numbers are easier to read in
    # groups.
    return Text(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _plain(value))


def _plain(value: Any) -> str:
    return "" if value is None else printable(str(value))


_LAST_DATE = 253_402_300_799_999
"""Times in milliseconds after this time (the end of the year 9999) are printed as numbers."""


def as_time(column: str) -> str:
    """Return SQL that formats milliseconds as 2026-01-02T03:04:05.678Z. Times outside of the calendar stay numbers."""
    return (
        f"CASE WHEN {column} BETWEEN 0 AND {_LAST_DATE} "
        f"THEN date_format(timestamp_millis({column}), \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") "
        f"ELSE string({column}) END AS {column}"
    )


_KAFKA = "org.apache.kafka."
_TOPIC_MISSING = "UnknownTopicOrPartitionException"
_MISSING = "a topic does not exist in the cluster"


def cause(error: Exception) -> str:
    """Return the cause in one line: the message of an error of topicfs or Kafka, otherwise Spark's first line.

    The first line of an error from Java names only the failed call; a later line has the exception.
    """
    text = str(error)
    own = raised_in(text)
    if own is not None:
        return own.message
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while thrown is not None:
        package, _, name = thrown.getClass().getName().rpartition(".")
        if package.startswith(_KAFKA):
            missing = name == _TOPIC_MISSING
            return f"Kafka: {_MISSING if missing else thrown.getMessage()} ({name})"
        thrown = thrown.getCause()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


_MASTER, _SETTINGS, _AS_PROGRAM = "topicfs.spark.master", "topicfs.spark.settings", "topicfs.job.json"
"""Keys in click's context. They store the options of every job until the job runs."""


def job_options() -> list[click.Parameter]:
    """Return the options of every job: where Spark runs, Spark's settings, and how rows are printed."""
    return [
        click.Option(
            ["--master"],
            metavar="URL",
            expose_value=False,
            callback=partial(_keep, _MASTER),
            help="Where Spark runs: spark://HOST:PORT, local[4], …; else as MASTER or spark-defaults.conf "
            "have it, else on all cores here.",
        ),
        click.Option(
            ["--conf", "-c"],
            metavar="NAME=VALUE",
            multiple=True,
            expose_value=False,
            callback=partial(_keep, _SETTINGS),
            help="A setting of Spark, e.g. spark.executor.memory=2g.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=partial(_keep, _AS_PROGRAM),
            help="One JSON array in place of a table.",
        ),
    ]


def run_job(job: Callable[[SparkSession], DataFrame], *, places: Sequence[SparkPlace] = ()) -> None:
    """Run a job in a new session that reaches `places`, and print its rows. Raises StorageError.

    `job` must import Spark modules itself, because they are available only after the session was created.
    """
    context = click.get_current_context()
    with (
        progress_bar(context.info_name or "") as drawn,
        _captured_stderr(drawn) as stderr,
        job_session(_session_options(), stderr=stderr, places=places, say=drawn.say) as session,
        drawn.watching(session),
    ):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            found = job(session)
            columns, rows = found.columns, [row.asDict(recursive=True) for row in found.collect()]
        except (PySparkException, Py4JError) as error:
            raise StorageError(cause(error)) from error
    print_rows(columns, rows, as_program=context.meta[_AS_PROGRAM])


@contextmanager
def _captured_stderr(drawn: ProgressBar) -> Iterator[IO[bytes] | None]:
    """Yield a file for Spark's standard error if a bar is drawn; otherwise None.

    At the end, prints the important lines of the file. If the block fails, prints the whole file, but only with
    --debug.
    """
    if not drawn.is_drawn:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        try:
            yield file
            file.seek(0)
            for line in important_lines(octets.decode(errors="replace") for octets in file):
                drawn.say(line)
        except BaseException:
            if click.get_current_context().find_root().params.get("debug"):
                file.seek(0)
                sys.stderr.write(file.read().decode(errors="replace"))
            raise


def _keep(name: str, context: click.Context, _parameter: click.Parameter, value: object) -> None:
    context.meta[name] = value


def _session_options() -> SessionOptions:
    meta = click.get_current_context().meta
    settings = {}
    for text in meta[_SETTINGS]:
        name, separator, value = text.partition("=")
        if not separator or not name.startswith("spark."):
            raise click.BadParameter(f"expected spark.NAME=VALUE, got {text}", param_hint="--conf")
        settings[name] = value
    return SessionOptions(meta[_MASTER], settings)
