"""`topicfs topics`: creates, lists, describes and deletes topics; needs no mount."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from rich.filesize import decimal
from rich.table import Table

from topicfs.api.topics import Topics
from topicfs.callers import completion
from topicfs.commands.replicas import topic_replicas
from topicfs.coordination.engine import Engine
from topicfs.data_directory import opened_or_mounted, parse_settings
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.fusefs.times import written
from topicfs.groups.location import serving_mount
from topicfs.lines import say
from topicfs.mounted import explained, status_of
from topicfs.options import data_option, place_option
from topicfs.paths import parse_path
from topicfs.places import Place
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Topic, records_of
from topicfs.storage.errors import PolicyViolationError, StorageError, TopicNotEmptyError, UnknownTopicError
from topicfs.storage.messages import reason_of
from topicfs.storage.model import NO_TIMESTAMP, ONLINE, Timestamp
from topicfs.terminal import console, is_terminal, plain


@click.group(
    cls=ExampleGroup,
    examples="""
        topicfs topics create orders --partitions 4  # make one
        topicfs topics list  # see them all
        topicfs topics describe orders  # see one in detail
        topicfs topics delete orders  # remove one
        topicfs topics online  # after a repair: serve offline partitions again
    """,
)
def topics() -> None:
    """Create, list, describe and delete topics; bring offline partitions back.

    In a mount, use mkdir, ls, cat MOUNT/orders/0/status and rmdir instead.
    """


topics.add_command(topic_replicas)


@topics.command(
    cls=ExampleCommand,
    examples="""
        topicfs topics create orders  # a topic with one partition
        topicfs topics create orders --partitions 4  # with four
        topicfs topics create clicks --config retention.ms=604800000 --config segment.bytes=104857600  # kept a week
    """,
)
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    help="Number of partitions.  [default: num.partitions of the settings, or of the cluster's brokers]",
)
@click.option(
    "--config",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=completion.settings,
    help="A setting of the topic, by Kafka's name.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    help="Number of replicas, in data directories that replicate.  [default: default.replication.factor]",
)
@place_option
def create(
    names: tuple[str, ...],
    *,
    partitions: int | None,
    settings: tuple[str, ...],
    replicas: int | None,
    place: Place,
) -> None:
    """Create topics."""
    overrides = parse_settings(settings)
    for number, name in enumerate(names):
        if name in names[:number]:
            raise click.UsageError(f"{name}: is given twice")
    if place.cluster is None:
        TopicConfig.from_overrides(overrides)
    with Topics(place, through_mount=f"mkdir MOUNTPOINT/{names[0]}") as topics:
        for name in names:
            topics.check_new(name, replicas=replicas)
        for name in names:
            count = len(topics.create(name, partitions=partitions, config=overrides, replicas=replicas))
            say(f"{name}: created with {count} partition{'s' * (count != 1)}")


@topics.command(
    "list",
    cls=ExampleCommand,
    examples="""
        topicfs topics list  # names, and on a terminal what they hold
        topicfs topics list --data /var/lib/kafka/data  # a broker's topics
        topicfs topics list --data kafka://localhost:9092  # a cluster's
    """,
)
@place_option
def list_topics(*, place: Place) -> None:
    """List topics: as a table on a terminal, otherwise one name per line."""
    with place.opened() as engine:
        if is_terminal():
            console().print(_overview(engine))
        else:
            for name in engine.topics():
                say(name)


@topics.command(
    cls=ExampleCommand,
    examples="""
        topicfs topics describe orders  # settings, and every partition's bounds, sizes and times
    """,
)
@click.argument("name", shell_complete=completion.topics)
@place_option
def describe(name: str, *, place: Place) -> None:
    """Describe a topic: its ID, its overrides, and its partitions."""
    with place.opened() as engine:
        topic = engine.topic(name)
        screen = console()
        screen.print(
            f"[name]{topic.name}[/name]  id {topic.topic_id}{'  internal' if topic.internal else ''}"
        )
        for setting, value in sorted(topic.overrides.items()):
            screen.print(plain(f"  {setting}={value}", "quiet"))
        screen.print(_partitions(topic))


@topics.command(
    cls=ExampleCommand,
    examples="""
        topicfs topics delete orders  # an empty topic
        topicfs topics delete orders --with-records  # a topic and all its records, for good
    """,
)
@click.argument("name", shell_complete=completion.topics)
@click.option(
    "--with-records", is_flag=True, help="Delete it even if it has records, which are lost for good."
)
@place_option
def delete(name: str, *, with_records: bool, place: Place) -> None:
    """Delete a topic. A topic with records is deleted only with --with-records."""
    try:
        with Topics(place, through_mount=f"rmdir MOUNTPOINT/{name}", make=False) as topics:
            topics.delete(name, with_records=with_records)
    except TopicNotEmptyError as error:
        mountpoint = serving_mount(place)
        also = f", if the mount at {mountpoint} has --allow-delete" if mountpoint else ""
        raise PolicyViolationError(f"{error}; add --with-records to delete them too{also}") from error
    say(f"{name}: deleted")


def moment(timestamp: Timestamp) -> str:
    """Format a record's time as selectors accept it, to the second."""
    if timestamp == NO_TIMESTAMP:
        return "-"
    return written(timestamp, timespec="seconds")


def _overview(engine: Engine) -> Table:
    table = Table("topic", box=None, header_style="quiet", pad_edge=False)
    for title in ("partitions", "offsets", "size", "last record"):
        table.add_column(title, justify="right")
    for topic in engine.topics().values():
        states = [partition.status() for partition in topic.partitions().values()]
        table.add_row(
            f"[name]{topic.name}[/name]",
            str(len(states)),
            f"{records_of(topic):,}",
            _size(*(state.log_bytes for state in states)),
            moment(max((state.last_timestamp for state in states), default=NO_TIMESTAMP)),
        )
    return table


def _partitions(topic: Topic) -> Table:
    table = Table("partition", box=None, header_style="quiet", pad_edge=False)
    for title in ("start", "end", "segments", "size", "last record", "state"):
        table.add_column(title, justify="left" if title == "state" else "right")
    for number, partition in topic.partitions().items():
        status = partition.status()
        fields = (
            str(number),
            str(status.offsets.log_start_offset),
            str(status.offsets.log_end_offset),
            "-" if status.segments is None else str(status.segments),
            _size(status.log_bytes),
            moment(status.last_timestamp),
            status.state,
        )
        table.add_row(*map(plain, fields))
    return table


def _size(*log_bytes: int | None) -> str:
    """Return the sum of the sizes; `-` if a size is unknown."""
    known = [size for size in log_bytes if size is not None]
    return decimal(sum(known)) if len(known) == len(log_bytes) else "-"


@topics.command(
    ONLINE,
    cls=ExampleCommand,
    short_help="Serve offline partitions again, after a repair.",
    examples="""
        topicfs topics online  # every partition that is offline
        topicfs topics online orders/0  # one; if its whole directory had failed, all partitions in it
        topicfs topics online orders --data /disk1/data,/disk2/data  # those of a topic
        echo online > mnt/orders/0/state  # the same through the mount
    """,
)
@click.argument("places", metavar="[TOPIC[/PARTITION]]…", nargs=-1, shell_complete=completion.partitions)
@data_option
@click.pass_context
def online(context: click.Context, /, places: tuple[str, ...], *, directories: tuple[Path, ...]) -> None:
    """Serve offline partitions again, after the cause of the failure was repaired.

    Causes are a failed flush, a damaged file, or a missing disk: the partitions are recovered from the data on disk.
    If a daemon owns the directory, the command works through its mount. Prints one line per partition; the exit
    status is 1 if any partition stays offline.
    """
    wanted = tuple(place.strip("/") for place in places)
    for place in wanted:
        parse_path(place)
    with opened_or_mounted(directories) as owner:
        # Opening the directories has already tried to load every partition.
        brought = list(
            through_mount(owner, wanted) if isinstance(owner, Path) else through_engine(owner, wanted)
        )
    for name, state in brought:
        say(f"{name}: {state}")
    for place in wanted:
        if not any(_is_asked_for(name, (place,)) for name, _ in brought):
            raise UnknownTopicError(f"{place}: no such topic or partition")
    if any(state != ONLINE for _, state in brought):
        context.exit(1)
    if not brought:
        say("nothing is offline", error=True)


def through_engine(engine: Engine, wanted: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the requested partitions, or all offline partitions, each with its state (`online`, or why it is not)."""
    for topic in engine.topics().values():
        for number, partition in topic.partitions().items():
            name = f"{topic.name}/{number}"
            state = partition.status().state
            if _is_asked_for(name, wanted) and (wanted or state != ONLINE):
                yield name, state


def through_mount(mountpoint: Path, wanted: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Let a daemon load offline partitions, by writing `online` to each partition's `state`."""
    partitions = (path for path in mountpoint.glob("[!@]*/*/status") if path.parent.name.isdecimal())
    for path in sorted(partitions, key=lambda path: (path.parent.parent.name, int(path.parent.name))):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        if not _is_asked_for(name, wanted):
            continue
        # Check each partition again, because loading the first partition of a directory may bring all of its
        # partitions back.
        if _state(path) == ONLINE:
            if wanted:
                yield name, ONLINE
            continue
        try:
            with explained(mountpoint, f"{name}/state"), (path.parent / "state").open("a") as file:
                file.write(f"{ONLINE}\n")
        except (OSError, StorageError) as error:
            yield name, f"{_state(path)} ({reason_of(error)})"
        else:
            yield name, _state(path)


def _state(status: Path) -> str:
    state = status_of(status.parent).get("state")
    if state is None:
        raise StorageError(f"{status}: no such file; is this a mount of topicfs?")
    return state


def _is_asked_for(name: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or any(name == place or name.startswith(place + "/") for place in wanted)
