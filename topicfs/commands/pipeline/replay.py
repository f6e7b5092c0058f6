"""`topicfs pipeline replay`: topic to topic."""

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
    short_help="Topic to topic, through SQL.",
    examples=(
        ("topicfs pipeline replay orders copy", "everything, once: all of it or nothing"),
        ("topicfs pipeline replay orders copy --checkpoint ./progress", "what came since the last time"),
        ("topicfs pipeline replay orders upper --select 'key, upper(value) AS value'", "with other values"),
        ("topicfs pipeline replay orders orders --to kafka://host:9092", "from here to a Kafka cluster"),
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
@commit_group_option
@target_place_option
@place_option
def replay(
    *,
    checkpoint: Path | None,
    commit_group: str | None,
    place: SparkPlace,
    target_place: SparkPlace | None,
    **of_the_job: Any,
) -> None:
    """Append the records of TOPICs to the topic TARGET, which must be there, through a SQL filter and projection.

    Keys choose partitions as in Kafka. A write into a Kafka cluster is Spark's own: at least once, and with the time of
    writing. Prints source, target and the number of records.
    """
    require_checkpoint(commit_group, checkpoint)
    target_place = found_target(target_place or place, of_the_job["target"])
    place = found(place, of_the_job["source"], checkpoint=checkpoint)

    def job(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.replay import ReplayOptions
        from topicfs.pipeline.jobs.replay import replay as run

        options = ReplayOptions(
            path=place,
            target_path=target_place,
            checkpoint=str(checkpoint.absolute()) if checkpoint else None,
            **of_the_job,
        )
        return run(session, options)

    run_job(job, places=[place, target_place])
    commit_progress(place, commit_group, checkpoint)
