"""The options for a job's places on the command line: data directories as everywhere, or a Kafka cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pipeline.places.place import SparkPlace, place_of
from storage.errors import StorageError
from topicfs.data_directory import DEFAULT_DIRECTORY, VARIABLE

Command = TypeVar("Command", bound=Callable[..., Any])

PLACE = "DIR[,DIR]|kafka://HOST:PORT"


def parse_place(text: str) -> SparkPlace:
    """Parse what a user typed (click.BadParameter)."""
    try:
        return place_of(text)
    except StorageError as error:
        raise click.BadParameter(str(error)) from None


def place_option(command: Command) -> Command:
    """Add `--data PLACE` to a command, with the environment and then ./data behind it: `place`."""
    return click.option(
        "--data",
        "-d",
        "place",
        type=parse_place,
        default=DEFAULT_DIRECTORY,
        envvar=VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar=PLACE,
        help="Where the topics are: a data directory, or several, or a Kafka cluster.",
    )(command)


def target_place_option(command: Command) -> Command:
    """Add `--to PLACE` to a command, for a target that is not where the sources are: `target_place`, or None."""
    return click.option(
        "--to",
        "target_place",
        type=parse_place,
        metavar=PLACE,
        help="Where TARGET is; else where the sources are.",
    )(command)


def found(place: SparkPlace) -> SparkPlace:
    """Return the same place with absolute directories; PipelineError at once, where Spark would need seconds, Kafka minutes."""
    if place.is_kafka:
        from pipeline.places.place import require_reachable  # noqa: PLC0415 (for clusters alone)

        require_reachable(place)
        return place
    from pipeline.places.paths import data_directories  # noqa: PLC0415 (`--help` reads no directory)

    return SparkPlace(path=",".join(map(str, data_directories(place.path or ""))))
