"""`topicfs pipeline aggregate`: counts of windows of time, topic to topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicfs.examples import ExampleCommand
from topicfs.jobs.commit_group import commit_group_option, commit_progress, require_checkpoint
from topicfs.jobs.places import found, found_target, place_option, target_place_option
from topicfs.jobs.run import run_job
from topicfs.pipeline.places.place import SparkPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@click.command(
    cls=ExampleCommand,
    short_help="Counts of windows of time, topic to topic.",
    examples=(
        ("topicfs pipeline aggregate orders per-hour --window '1 hour'", "everything, once: every window"),
        (
            "topicfs pipeline aggregate orders by-key --window '1 hour' --by key --add 'sum(length(value)) AS bytes'",
            "one result a key, with the sum of bytes",
        ),
        (
            "topicfs pipeline aggregate clicks by-user --window '1 hour' --by \"get_json_object(string(value), '$.user')\"",
            "by a field of the values",
        ),
        (
            "topicfs pipeline aggregate orders per-hour --window '1 hour' --delay '10 minutes' --checkpoint ./progress",
            "the windows that are over since the last time",
        ),
        (
            "topicfs pipeline aggregate orders per-hour --window '1 hour' --checkpoint ./progress --close",
            "the last ones, too, when nothing more will come",
        ),
        (
            "topicfs pipeline aggregate orders live --window '1 minute' --checkpoint ./progress --continuous",
            "go on as records come, until ^C",
        ),
    ),
)
@click.argument("source", metavar="TOPIC[,TOPIC]")
@click.argument("target", metavar="TARGET")
@click.option("--window", required=True, metavar="LENGTH", help="Of a window, e.g. '5 minutes' or '1 hour'.")
@click.option("--slide", metavar="LENGTH", help="How far apart windows begin; else they follow one another.")
@click.option(
    "--by", "group", metavar="SQL", help="An expression to group by, e.g. key; else one count a window."
)
@click.option("--where", default="true", metavar="SQL", help="A condition over the source's columns.")
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
    help="With --checkpoint: how late records may come. A window is over when a record is later than its end by this.",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Remember in DIR how far it came and which windows are open, and bring only those that are over since.",
)
@click.option(
    "--close",
    is_flag=True,
    help="With --checkpoint: nothing more will come; bring the windows that are still open, too.",
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
def aggregate(
    *,
    checkpoint: Path | None,
    commit_group: str | None,
    place: SparkPlace,
    target_place: SparkPlace | None,
    **of_the_job: Any,
) -> None:
    """Count the records of TOPICs in windows of their own time, and append the counts to TARGET, which must be there.

    A result's key is its group, its value JSON: {"start": …, "end": …, "group": …, "count": …} and what --add adds; its
    time is the window's start, so that a day's windows are archived under that day.

    Without --checkpoint every window comes out, those that time may still add to as well, all of them or none. With it
    each comes out once, when it is over: when a record has come whose time is later than the window's end and --delay.
    What comes for it after that is left out, which is said. The last windows wait for such a record, or for a run with --close.

    Prints source, target and the number of results.
    """
    require_checkpoint(commit_group, checkpoint)
    target_place = found_target(target_place or place, of_the_job["target"])
    place = found(place, of_the_job["source"], checkpoint=checkpoint)

    def job(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.aggregate import AggregateOptions
        from topicfs.pipeline.jobs.aggregate import aggregate as run

        options = AggregateOptions(
            path=place,
            target_path=target_place,
            checkpoint=str(checkpoint.absolute()) if checkpoint else None,
            **of_the_job,
        )
        return run(session, options)

    run_job(job, places=[place, target_place])
    commit_progress(place, commit_group, checkpoint)
