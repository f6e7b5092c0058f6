"""`topicfs topics online`: partitions that went offline are served again, after a repair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from topicfs.callers import completion
from topicfs.coordination.engine import Engine
from topicfs.data_directory import opened_or_mounted
from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.mounted.appends import status_of
from topicfs.mounted.reasons import explained
from topicfs.options import data_option
from topicfs.paths import parse_path
from topicfs.storage.errors import StorageError, UnknownTopicError
from topicfs.storage.messages import reason_of
from topicfs.storage.model import ONLINE


class Brought(NamedTuple):
    """The result for a partition that was offline."""

    name: str
    """`orders/0`."""
    state: str
    """`online`, or what still keeps it from that."""


@click.command(
    ONLINE,
    cls=ExampleCommand,
    short_help="Serve partitions again that are offline, after a repair.",
    examples=(
        ("topicfs topics online", "every partition that is offline"),
        ("topicfs topics online orders/0", "one; if its whole directory had failed, all that stand there"),
        ("topicfs topics online orders --data /disk1/data,/disk2/data", "those of a topic"),
        ("echo online > mnt/orders/0/state", "the same through the mount"),
    ),
)
@click.argument("places", metavar="[TOPIC[/PARTITION]]…", nargs=-1, shell_complete=completion.partitions)
@data_option
@click.pass_context
def online(context: click.Context, /, places: tuple[str, ...], *, directories: tuple[Path, ...]) -> None:
    """Serve partitions again that went offline, once what took them offline is repaired.

    A failed flush, a damaged file, a disk that was gone: what is there is recovered, and served. A daemon that owns
    the directory is asked through its mount. One line a partition; exit status 1 if any stays offline.
    """
    wanted = tuple(place.strip("/") for place in places)
    for place in wanted:
        parse_path(place)
    with opened_or_mounted(directories) as owner:
        # Opening has tried every partition already.
        brought = list(
            through_mount(owner, wanted) if isinstance(owner, Path) else through_engine(owner, wanted)
        )
    for one in brought:
        say(f"{one.name}: {one.state}")
    for place in wanted:
        if not any(_is_asked_for(one.name, (place,)) for one in brought):
            raise UnknownTopicError(f"{place}: no such topic or partition")
    if any(one.state != ONLINE for one in brought):
        context.exit(1)
    if not brought:
        say("nothing is offline", error=True)


def through_engine(engine: Engine, wanted: tuple[str, ...]) -> Iterator[Brought]:
    """Yield the states of the partitions that were asked for, or of those that are offline."""
    for topic in engine.topics().values():
        for number, partition in topic.partitions().items():
            name = f"{topic.name}/{number}"
            state = partition.status().state
            if _is_asked_for(name, wanted) and (wanted or state != ONLINE):
                yield Brought(name, state)


def through_mount(mountpoint: Path, wanted: tuple[str, ...]) -> Iterator[Brought]:
    """Have a daemon load again what is offline, by a write of `online` to each partition's `state`."""
    partitions = (path for path in mountpoint.glob("[!@]*/*/status") if path.parent.name.isdecimal())
    for path in sorted(partitions, key=lambda path: (path.parent.parent.name, int(path.parent.name))):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        if not _is_asked_for(name, wanted):
            continue
        # Asked again for each: with the first of a directory all of it may have come back.
        if _state(path) == ONLINE:
            if wanted:
                yield Brought(name, ONLINE)
            continue
        try:
            with explained(mountpoint, f"{name}/state"), (path.parent / "state").open("a") as file:
                file.write(f"{ONLINE}\n")
        except (OSError, StorageError) as error:
            yield Brought(name, f"{_state(path)} ({reason_of(error)})")
        else:
            yield Brought(name, _state(path))


def _state(status: Path) -> str:
    state = status_of(status.parent).get("state")
    if state is None:
        raise StorageError(f"{status}: no state there; is that a mount of topicfs?")
    return state


def _is_asked_for(name: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or any(name == place or name.startswith(place + "/") for place in wanted)
