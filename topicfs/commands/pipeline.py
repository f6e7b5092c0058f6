"""`topicfs pipeline`: jobs over whole topics, run by Spark. Shared parts are in `topicfs/jobs/`."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.jobs.commit_group import commit_group_option, commit_positions, offsets_done
from topicfs.jobs.places import found, found_target, place_option, target_place_option
from topicfs.jobs.run import as_time, job_options, run_job
from topicfs.pipeline.errors import NoArchiveError, PipelineError
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.verification import require_files
from topicfs.terminal import console

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SEGMENT_NUMBERS = ("segment", "bytes", "batches", "records", "first_offset", "last_offset")
_FINDING = "concat(one.file, ':', coalesce(concat(' position ', one.position, ':'), ''), ' ', one.cause)"
"""SQL that formats a finding like `topicfs check`."""
_SEGMENT_COLUMNS = (
    *("directory", "topic", "partition", *_SEGMENT_NUMBERS),
    as_time("largest_timestamp"),
    "array_join(codecs, ',') AS codecs",
    f"array_join(transform(wrong, one -> {_FINDING}), '; ') AS wrong",
)
_TIMES = (as_time("first_time"), as_time("last_time"))
_LAG = "array_join(transform(groups, one -> concat(one.group, ' ', one.lag)), ', ') AS lag"
"""SQL for the lag of each group that reads a partition: `archive 0, billing 3`."""


class _InOrder(ExampleGroup):
    """A group that lists its jobs in the order in which they were added; click would sort them by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


class _Job(ExampleCommand):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += job_options()


_where_option = click.option(
    "--where", default="true", metavar="SQL", help="A condition over the source's columns."
)
_checkpoint_option = partial(
    click.option, "--checkpoint", type=click.Path(path_type=Path, file_okay=False), metavar="DIR"
)


@click.group(
    cls=_InOrder,
    examples="""
        topicfs pipeline archive orders,clicks ./archive  # two topics to Parquet, by date; again: what came since
        topicfs pipeline restore ./archive  # the archive back into its topics, offsets and times kept
        topicfs pipeline replay orders copy  # every record of a topic into another
        topicfs pipeline replay orders late --where "key = 'late'"  # some of them, chosen by SQL
        topicfs pipeline aggregate orders per-hour --window '1 hour'  # how many came in each hour
        topicfs pipeline verify  # every segment checked, by many tasks
        topicfs pipeline report  # a page of plots: report.html
    """,
)
def pipeline() -> None:
    """Run a job over whole topics with Spark, on this machine or, with --master, on a cluster.

    The command needs Java and an extra: pip install 'topicfs[spark]'. A running daemon is not disturbed, and a job
    writes to topics through that daemon.
    """


@pipeline.command(
    cls=_Job,
    short_help="Archive topics to Parquet, by date.",
    examples="""
        topicfs pipeline archive orders ./archive  # what came since the last time, each record once
        topicfs pipeline archive orders ./archive --data kafka://host:9092  # of a Kafka cluster
        topicfs pipeline archive 'orders-*' ./lake --format iceberg --continuous  # an Iceberg table, kept up to date
        # and `topicfs groups describe archive` shows how far it is behind
        topicfs pipeline archive orders ./archive --commit-group archive
    """,
)
@click.argument("topics", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="ARCHIVE", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Parquet files, or an Iceberg table of Parquet files, topicfs.records.",
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
    """Archive TOPICs to Parquet files in ARCHIVE, a folder per topic and date, with all their columns.

    A TOPIC may be a shell pattern in quotes; later runs also archive new topics that match it. Each run archives the
    records that arrived since the last run, each record once, even if a run was interrupted. Many small files of a
    date are merged. The command prints the contents of the archive: topic, date, partition, first offset and number
    of records.
    """
    from topicfs.pipeline.archiving.listed import CHECKPOINT

    checkpoint = target.absolute() / CHECKPOINT
    wild = not {"*", "?", "["}.isdisjoint(topics)
    place = found(place, "" if wild else topics, checkpoint=checkpoint)

    def run(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs import archive as job

        options = job.ArchiveOptions(
            path=place,
            topics=topics,
            target=target,
            format=kind,
            every_seconds=interval if continuous else None,
            committed=partial(commit_positions, place, commit_group),
        )
        return job.archive(session, options)

    run_job(run)


@pipeline.command(
    cls=_Job,
    short_help="Restore an archive into topics.",
    examples="""
        topicfs pipeline restore ./archive  # every topic that the archive has; again: what is missing
        topicfs pipeline restore ./archive orders --into orders-of-may  # one, under another name
        topicfs pipeline restore ./archive --data ./new  # into a new data directory
        # into a Kafka cluster, which assigns offsets itself
        topicfs pipeline restore ./archive --data kafka://host:9092 --without-offsets
    """,
)
@click.argument("archive", metavar="ARCHIVE", type=click.Path(path_type=Path, file_okay=False))
@click.argument("topics", metavar="[TOPIC[,TOPIC]]", required=False)
@click.option("--into", metavar="NAME", help="Another name for the topic, if there is only one.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    help="Minimum number of partitions of a new topic.  [default: as many as the topic had]",
)
@click.option(
    "--without-offsets",
    is_flag=True,
    help="Do not keep offsets, for a Kafka cluster, which cannot keep them.",
)
@place_option
def restore(archive: Path, *, place: SparkPlace, **of_the_job: Any) -> None:
    """Restore the records of an ARCHIVE, made by `archive`, into their topics with their offsets and times.

    Missing topics are created, with their former settings and partitions. A topic whose records would be deleted
    immediately because of their age gets retention.ms=-1. Gaps between offsets stay, and a log begins at its first
    record. A topic that already has records must have the same records as the archive at the same offsets; then the
    records beyond its end are appended, so running the command again continues an interrupted restore. If the topic
    has any other record, the command reports an error and changes nothing.

    A Kafka cluster assigns offsets itself: use --without-offsets, which keeps partitions, order, times, keys and
    values. The topics in the cluster must exist and be empty, so after an interruption a restore begins again.

    Prints topic, partition, first and last offset of the archive, and how many records were restored or already
    existed.
    """
    if not archive.is_dir():
        raise NoArchiveError(archive)
    if place.without:
        raise click.UsageError("remove --without; restore into a directory without replicas")
    if not place.is_kafka and place.path and not any(one in place.path for one in "*?[,"):
        # Like all commands that create topics.
        Path(place.path).mkdir(mode=0o700, parents=True, exist_ok=True)
    place = found(place)

    def run(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.restore import restore as job

        return job.restore(session, job.RestoreOptions(archive=archive, path=place, **of_the_job))

    run_job(run)


def _run_into_topic(
    run: Callable[..., DataFrame],
    *,
    checkpoint: Path | None,
    commit_group: str | None,
    place: SparkPlace,
    target_place: SparkPlace | None,
    **of_the_job: Any,
) -> None:
    """Run a job that appends to a topic, and commit its progress. `run` takes the session and the job's options."""
    if commit_group is not None and checkpoint is None:
        raise click.UsageError("--commit-group needs --checkpoint, which has the progress to commit")
    target_place = found_target(target_place or place, of_the_job["target"])
    place = found(place, of_the_job["source"], checkpoint=checkpoint)
    of_the_job |= {"path": place, "target_path": target_place}
    of_the_job["checkpoint"] = str(checkpoint.absolute()) if checkpoint else None
    run_job(partial(run, **of_the_job), places=[place, target_place])
    if checkpoint is not None and commit_group is not None:
        commit_positions(place, commit_group, offsets_done(checkpoint))


@pipeline.command(
    cls=_Job,
    short_help="Copy topics to a topic, through SQL.",
    examples="""
        topicfs pipeline replay orders copy  # everything, once: all of it or nothing
        topicfs pipeline replay orders copy --checkpoint ./progress  # what came since the last time
        topicfs pipeline replay orders upper --select 'key, upper(value) AS value'  # with other values
        topicfs pipeline replay orders orders --to kafka://host:9092  # from here to a Kafka cluster
    """,
)
@click.argument("source", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="TARGET")
@_where_option
@click.option(
    "--select",
    default="key, value, headers, timestamp",
    show_default=True,
    metavar="SQL",
    help="Expressions for the columns to write.",
)
@_checkpoint_option(help="Store the progress in DIR, and process only new records.")
@commit_group_option
@target_place_option
@place_option
def replay(**given: Any) -> None:
    """Append the records of TOPICs to the existing topic TARGET, through a SQL filter and projection.

    Keys choose partitions as in Kafka. If TARGET is in a cluster, Spark's own Kafka sink writes each record at least
    once, with the time of writing. Prints source, target and the number of records.
    """

    def run(session: SparkSession, **options: Any) -> DataFrame:
        from topicfs.pipeline.jobs import replay as job

        return job.replay(session, job.ReplayOptions(**options))

    _run_into_topic(run, **given)


@pipeline.command(
    cls=_Job,
    short_help="Count the records in windows of time.",
    examples="""
        topicfs pipeline aggregate orders per-hour --window '1 hour'  # everything, once: every window
        # one result a key, with the sum of bytes
        topicfs pipeline aggregate orders by-key --window '1 hour' --by key --add 'sum(length(value)) AS bytes'
        # by a field of the values
        topicfs pipeline aggregate clicks by-user --window '1 hour' --by "get_json_object(string(value), '$.user')"
        # the windows that are over since the last time
        topicfs pipeline aggregate orders per-hour --window '1 hour' --delay '10 minutes' --checkpoint ./progress
        # the last ones, too, when nothing more will come
        topicfs pipeline aggregate orders per-hour --window '1 hour' --checkpoint ./progress --close
        # go on as records come, until ^C
        topicfs pipeline aggregate orders live --window '1 minute' --checkpoint ./progress --continuous
    """,
)
@click.argument("source", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="TARGET")
@click.option(
    "--window", required=True, metavar="LENGTH", help="Length of a window, e.g. '5 minutes' or '1 hour'."
)
@click.option(
    "--slide", metavar="LENGTH", help="Distance between the starts of windows.  [default: their length]"
)
@click.option(
    "--by",
    "group",
    metavar="SQL",
    help="An expression to group by, e.g. key; without it, one count per window.",
)
@_where_option
@click.option(
    "--add",
    "aggregates",
    multiple=True,
    metavar="SQL",
    help="One more aggregate with its name, e.g. 'sum(length(value)) AS bytes'.",
)
@click.option(
    "--delay",
    default="0 seconds",
    show_default=True,
    metavar="LENGTH",
    help="With --checkpoint: how late records may come. A window is over once a record is later than its end plus this delay.",
)
@_checkpoint_option(help="Store progress and open windows in DIR, and write each window once, at its end.")
@click.option(
    "--close", is_flag=True, help="With --checkpoint: no more records will come; write the open windows too."
)
@click.option("--continuous", is_flag=True, help="With --checkpoint: go on as records come, until ^C.")
@click.option(
    "--interval",
    default="5 seconds",
    show_default=True,
    metavar="LENGTH",
    help="With --continuous: the time between two reads of new records.",
)
@commit_group_option
@target_place_option
@place_option
def aggregate(**given: Any) -> None:
    """Count the records of TOPICs in windows of their own time, and append the counts to the existing topic TARGET.

    A result's key is its group. Its value is JSON: {"start": …, "end": …, "group": …, "count": …}, and the columns of
    --add. Its time is the window's start, so that the windows of a day are archived under that day.

    Without --checkpoint, all windows are written, including windows that may still grow; either all are written, or
    none. With --checkpoint, each window is written once, when it is over: when a record arrives whose time is later
    than the window's end plus --delay. Later records for the window are dropped, with a message. The last windows
    wait for such a record, or for a run with --close.

    Prints source, target and the number of results.
    """

    def run(session: SparkSession, **options: Any) -> DataFrame:
        from topicfs.pipeline.jobs import aggregate as job

        return job.aggregate(session, job.AggregateOptions(**options))

    _run_into_topic(run, **given)


@pipeline.command(
    cls=_Job,
    short_help="Check every segment: one row each.",
    examples="""
        topicfs pipeline verify  # every segment below ./data, with what is wrong in it
        # a broker's log.dirs, beside the broker; nothing printed if all is well
        topicfs pipeline verify --data '/disk*/kafka' --only-wrong
        # by a cluster whose workers see the directory
        topicfs pipeline verify --data /mnt/all/brokers --master spark://host:7077
    """,
)
@click.option("--only-wrong", is_flag=True, help="Leave out segments in which nothing is wrong.")
@place_option
@click.pass_context
def verify(context: click.Context, *, only_wrong: bool, place: SparkPlace) -> None:
    """Check every byte of data directories, as `topicfs check` does, in parallel tasks, without changing anything.

    Prints one row per segment: directory, topic, partition, base offset, bytes, batches, records, first and last
    offset, largest timestamp, codecs, and findings. Findings outside of segments have their own rows. The exit status
    is 1 if there is any finding. Data that a daemon or a broker has not finished yet is skipped.
    """
    place = found(require_files(place))
    findings = segments = 0

    def run(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs import verify as job

        nonlocal findings, segments
        checked = job.verify(session, job.VerifyOptions(place=place))
        findings, segments = checked.selectExpr("coalesce(sum(size(wrong)), 0)", "count(segment)").collect()[
            0
        ]
        shown = checked.where("size(wrong) > 0") if only_wrong else checked
        return shown.selectExpr(*_SEGMENT_COLUMNS)

    run_job(run)
    console(error=True).print(
        f"{findings or 'no'} finding{'s' * (findings != 1)} in {segments:,} segment{'s' * (segments != 1)}",
        style="bad" if findings else "good",
    )
    if findings:
        context.exit(1)


@pipeline.command(
    cls=_Job,
    short_help="Write a page of plots about topics.",
    examples="""
        topicfs pipeline report  # report.html, of all topics below ./data
        topicfs pipeline report orders,clicks --output today.html  # of two topics
        topicfs pipeline report --data /var/lib/kafka/data  # of a broker's log directory, beside the broker
        topicfs pipeline report --data kafka://host:9092  # of a cluster: all but its segments
    """,
)
@click.argument("topics", metavar="[TOPIC[,TOPIC]]", required=False)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="File of the page.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="How many of the largest topics get plots of their own; the others share one plot.",
)
@place_option
def report(topics: str | None, *, output: Path, top: int, place: SparkPlace) -> None:
    """Write a page on TOPICs (by default, all topics except Kafka's own) to FILE, for any browser.

    Shows records and bytes over time by partition, sizes of keys and values, the delay from record time to append
    time, compression, and the lag of groups. Prints a row per partition: topic, partition, records, segments, bytes
    on disk and uncompressed, first and last time, and the lag of each group that reads it. A cluster does not show
    its segments.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise PipelineError("matplotlib is not installed here; get it with: pip install 'topicfs[spark]'")
    place = found(place, topics or "")
    segments = () if place.is_kafka else ("segments",)
    columns = ("topic", "partition", "records", *segments, "log_bytes", "uncompressed_bytes", *_TIMES, _LAG)
    now_ms = time.time_ns() // 1_000_000

    def run(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs import report as job

        named = None if topics is None else tuple(one.strip() for one in topics.split(",") if one.strip())
        options = job.ReportOptions(place=place, topics=named, output=output, top=top, now_ms=now_ms)
        return job.report(session, options).selectExpr(*columns)

    run_job(run)
