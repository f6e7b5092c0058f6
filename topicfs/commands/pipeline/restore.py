"""`topicfs pipeline restore`: an archive back into topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topicfs.examples import ExampleCommand
from topicfs.jobs.places import found, place_option
from topicfs.jobs.run import run_job
from topicfs.pipeline.errors import NoArchiveError
from topicfs.pipeline.places.place import SparkPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@click.command(
    cls=ExampleCommand,
    short_help="An archive back into topics.",
    examples=(
        ("topicfs pipeline restore ./archive", "every topic that the archive has; again: what is missing"),
        ("topicfs pipeline restore ./archive orders --into orders-of-may", "one, under another name"),
        ("topicfs pipeline restore ./archive --data ./new", "into a new data directory"),
        (
            "topicfs pipeline restore ./archive --data kafka://host:9092 --without-offsets",
            "into a Kafka cluster, which assigns offsets itself",
        ),
    ),
)
@click.argument("archive", metavar="ARCHIVE", type=click.Path(path_type=Path, file_okay=False))
@click.argument("topics", metavar="[TOPIC[,TOPIC]]", required=False)
@click.option("--into", metavar="NAME", help="Another name for the topic, where it is one.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    help="How many partitions a topic that is made has at least; else as many as it had.",
)
@click.option(
    "--without-offsets", is_flag=True, help="Give offsets up where they cannot be kept: in a Kafka cluster."
)
@place_option
def restore(archive: Path, *, place: SparkPlace, **of_the_job: Any) -> None:
    """Bring the records of an ARCHIVE, made by `archive`, back into their topics with offsets and times as they were.

    Topics that are missing are made, with the settings and partitions that they had; what would be deleted at once for
    its age gets retention.ms=-1. Gaps between offsets stay gaps, and a log begins where its first record stood. A topic
    that has records must have the same ones at the same offsets: then what is beyond its end is appended, so running
    the command again continues an interrupted restore. Any other record there is an error, and nothing is changed.

    A Kafka cluster assigns offsets itself: with --without-offsets partitions, order, times, keys and values are kept
    there. Its topics must be there and empty: an interrupted restore begins again.

    Prints topic, partition, first and last offset of the archive, the records restored, and those that were there.
    """
    if not archive.is_dir():
        raise NoArchiveError(archive)
    place = _made(place)

    def job(session: SparkSession) -> DataFrame:
        from topicfs.pipeline.jobs.restore.restore import RestoreOptions
        from topicfs.pipeline.jobs.restore.restore import restore as run

        return run(session, RestoreOptions(archive=archive, path=place, **of_the_job))

    run_job(job)


def _made(place: SparkPlace) -> SparkPlace:
    """Return the place; a data directory that is not there yet is made, as by every command that makes topics."""
    if place.without:
        raise click.UsageError("--without is for replicas; restore into a directory without replicas")
    if not place.is_kafka and place.path and not any(one in place.path for one in "*?[,"):
        Path(place.path).mkdir(mode=0o700, parents=True, exist_ok=True)
    return found(place)
