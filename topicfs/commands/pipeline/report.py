"""`topicfs pipeline report`: a page of plots."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.examples import ExampleCommand
from topicfs.jobs.places import found, place_option
from topicfs.jobs.run import as_time, run_job
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import SparkPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES = (as_time("first_time"), as_time("last_time"))
_LAG = "array_join(transform(groups, one -> concat(one.group, ' ', one.lag)), ', ') AS lag"
"""The groups that read a partition, each with how far it is behind: `archive 0, billing 3`."""


@click.command(
    cls=ExampleCommand,
    short_help="A page of plots: what topics are like.",
    examples=(
        ("topicfs pipeline report", "report.html, of all topics below ./data"),
        ("topicfs pipeline report orders,clicks --output today.html", "of two topics"),
        (
            "topicfs pipeline report --data /var/lib/kafka/data",
            "of a broker's log directory, beside the broker",
        ),
        ("topicfs pipeline report --data kafka://host:9092", "of a cluster: all but its segments"),
    ),
)
@click.argument("topics", metavar="[TOPIC[,TOPIC]]", required=False)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="The page.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="How many topics get plots of their own, the largest; the others share one.",
)
@place_option
def report(topics: str | None, *, output: Path, top: int, place: SparkPlace) -> None:
    """Write a page on TOPICs (all but Kafka's own) to FILE, which opens from disk in any browser.

    Records and bytes over time by partition, sizes of keys and values, lag between record time and append time,
    compression; and how far groups are behind. Prints a row a partition: topic, partition, records, segments, bytes on disk and uncompressed, first
    and last time, and the lag of each group that reads it. A cluster does not show its segments.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise PipelineError("matplotlib is not installed here; get it with: pip install 'topicfs[spark]'")
    place = found(place, topics or "")
    segments = () if place.is_kafka else ("segments",)
    columns = ("topic", "partition", "records", *segments, "log_bytes", "uncompressed_bytes", *_TIMES, _LAG)
    now_ms = time.time_ns() // 1_000_000

    def job(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.report import ReportOptions
        from topicfs.pipeline.jobs.report import report as run

        named = None if topics is None else tuple(one.strip() for one in topics.split(",") if one.strip())
        options = ReportOptions(place=place, topics=named, output=output, top=top, now_ms=now_ms)
        return run(session, options).selectExpr(*columns)

    run_job(job)
