"""`topicfs pipeline verify`: `topicfs check`, by many tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topicfs.examples import ExampleCommand
from topicfs.jobs.places import found, place_option
from topicfs.jobs.run import as_time, run_job
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.verification import require_files
from topicfs.terminal import console

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS = ("segment", "bytes", "batches", "records", "first_offset", "last_offset")
_FINDING = "concat(one.file, ':', coalesce(concat(' position ', one.position, ':'), ''), ' ', one.cause)"
"""As `topicfs check` prints it."""
_COLUMNS = (
    *("directory", "topic", "partition", *_NUMBERS),
    as_time("largest_timestamp"),
    "array_join(codecs, ',') AS codecs",
    f"array_join(transform(wrong, one -> {_FINDING}), '; ') AS wrong",
)
"""Columns that are printed."""


@click.command(
    cls=ExampleCommand,
    short_help="Every segment checked: one row each.",
    examples=(
        ("topicfs pipeline verify", "every segment below ./data, with what is wrong in it"),
        (
            "topicfs pipeline verify --data '/disk*/kafka' --only-wrong",
            "a broker's log.dirs, beside the broker; nothing printed if all is well",
        ),
        (
            "topicfs pipeline verify --data /mnt/all/brokers --master spark://host:7077",
            "by a cluster whose workers see the directory",
        ),
    ),
)
@click.option("--only-wrong", is_flag=True, help="Leave out segments in which nothing is wrong.")
@place_option
@click.pass_context
def verify(context: click.Context, *, only_wrong: bool, place: SparkPlace) -> None:
    """Check every byte of data directories, as `topicfs check` does, by many tasks at once; nothing there is changed.

    Prints one row a segment: directory, topic, partition, base offset, bytes, batches, records, first and last offset,
    largest timestamp, codecs, and what is wrong. What is wrong beside the segments has rows of its own. Exit status 1
    if anything is. What a daemon or a broker has not finished yet is passed over.
    """
    place = found(require_files(place))
    findings = segments = 0

    def job(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.verify import VerifyOptions
        from topicfs.pipeline.jobs.verify import verify as run

        nonlocal findings, segments
        checked = run(session, VerifyOptions(place=place))
        findings, segments = checked.selectExpr("coalesce(sum(size(wrong)), 0)", "count(segment)").collect()[
            0
        ]
        shown = checked.where("size(wrong) > 0") if only_wrong else checked
        return shown.selectExpr(*_COLUMNS)

    run_job(job)
    console(error=True).print(
        f"{findings or 'no'} finding{'s' * (findings != 1)} in {segments:,} segment{'s' * (segments != 1)}",
        style="bad" if findings else "good",
    )
    if findings:
        context.exit(1)
