"""The options for a job's places on the command line: data directories, as for other commands, or a Kafka cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from topicfs.data_directory import refuse_broker
from topicfs.options import checked_security, client_config_option, option_of_data, without_option
from topicfs.pipeline.places.place import SparkPlace, place_of
from topicfs.storage.errors import StorageError

PLACE = "DIR[,DIR]|kafka://HOST:PORT"


def parse_place(text: str) -> SparkPlace:
    """Parse the value of the option. Raises click.BadParameter."""
    try:
        refuse_broker(text)
        return place_of(text)
    except StorageError as error:
        raise click.BadParameter(str(error)) from None


def place_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--data PLACE`, `--without DIR` and `--client-config FILE` to a command, which gets `place`.

    The default of `--data` is from the environment, or else ./data. `--client-config` also applies to a
    `target_place` that is a cluster, and `--without` to a `target_place` that is directories.
    """

    @functools.wraps(command)
    def with_place(
        *arguments: Any,
        place: SparkPlace,
        client_config: Path | None,
        without: tuple[Path, ...],
        **options: Any,
    ) -> None:
        given = {"place": place, **options}
        places = [name for name in ("place", "target_place") if given.get(name) is not None]
        clusters = [name for name in places if given[name].is_kafka]
        if without and clusters == places:
            raise click.UsageError("--without is for data directories: a cluster has its own replicas")
        if client_config is not None and not clusters:
            raise click.UsageError("--client-config applies to a cluster: --data kafka://HOST:PORT")
        if client_config is not None:
            checked_security(client_config)  # Report errors in the file before Spark starts.
            client_config = client_config.absolute()
        lost = ",".join(str(one.absolute()) for one in without)
        for name in places:
            given[name] = replace(
                given[name], client_config=client_config if name in clusters else None, without=lost
            )
        command(*arguments, **given)

    text = "Where the topics are: a data directory, or several, or a Kafka cluster."
    option = option_of_data("place", parse_place, metavar=PLACE, text=text)
    return option(without_option(client_config_option(with_place)))


target_place_option = click.option(
    "--to",
    "target_place",
    type=parse_place,
    metavar=PLACE,
    help="The place of TARGET.  [default: that of the sources]",
)


def found(place: SparkPlace, topics: str = "", *, checkpoint: Path | None = None) -> SparkPlace:
    """Return the same place with absolute directories. Raises StorageError if the place does not exist.

    Also raises StorageError if a data directory has none of `topics` (separated by commas), unless the job's
    `checkpoint` exists: in that case the job continues although a topic was deleted. All errors come before Spark
    starts.
    """
    if place.is_kafka:
        from topicfs.pipeline.places.place import require_reachable

        require_reachable(place)
        return place
    directories = place.directories
    if topics and (checkpoint is None or not checkpoint.exists()):
        from topicfs.pipeline.source.directories import SourceDirectories
        from topicfs.pipeline.source.query.bounds import select
        from topicfs.pipeline.source.query.options import Selection

        named = tuple(one.strip() for one in topics.split(",") if one.strip())
        select(Selection(topics=named), SourceDirectories(directories, place.left_out).partitions())
    return replace(place, path=",".join(map(str, directories)))


def found_target(place: SparkPlace, topic: str) -> SparkPlace:
    """Check the place of a job's target topic as `found` does. Raises UnknownTopicError, PolicyViolationError."""
    place = found(place)
    if not place.is_kafka:
        from topicfs.pipeline.sink.layout import read_layout

        read_layout(place.directories).topic(topic)
    return place
