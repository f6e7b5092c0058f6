"""`topicfs replicas` and `topicfs topics replicas`: who leads, who is in sync, how many replicas there are to be, and where."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from topicfs.callers import completion
from topicfs.commands.replicas_resolve import resolve
from topicfs.coordination.engine import Engine, Replication
from topicfs.data_directory import NO_REPLICAS, opened_for_reading, opened_or_mounted
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.lines import say
from topicfs.mounted.reasons import explained
from topicfs.options import data_option
from topicfs.paths import parse_path
from topicfs.storage.errors import StorageError, UnknownTopicError


@click.group(
    cls=ExampleGroup,
    examples=(
        ("topicfs replicas list", "where the replicas of each partition are"),
        ("topicfs replicas elect --preferred", "after a disk came back: let its replicas lead again"),
        ("topicfs replicas move orders/0 /disk3/data", "to another disk, while it serves"),
    ),
)
def replicas() -> None:
    """Show replicas, elect leaders, and move replicas.

    With a mount the same is done by cat MOUNT/orders/replicas and by writing there.
    """


replicas.add_command(resolve)


@replicas.command(
    "list",
    cls=ExampleCommand,
    examples=(
        ("topicfs replicas list --data /disk1/data,/disk2/data", "of all topics"),
        ("topicfs replicas list orders", "of one"),
    ),
)
@click.argument("topics", metavar="[TOPIC]…", nargs=-1, shell_complete=completion.topics)
@data_option
def list_replicas(topics: tuple[str, ...], *, directories: tuple[Path, ...]) -> None:
    """List the replicas of each partition: directory, role, log end, and how far it is behind its leader."""
    from topicfs.fusefs.files.replicas import replica_lines

    with opened_for_reading(directories) as engine:
        wanted = {name: engine.topic(name) for name in topics} or engine.topics()
        for name, topic in wanted.items():
            for number, partition in topic.partitions().items():
                for line in replica_lines(partition.status()):
                    say(f"{name}/{number} {line}")


@replicas.command(
    cls=ExampleCommand,
    examples=(
        ("topicfs replicas elect --preferred", "the first assigned replicas lead, where they are in sync"),
        (
            "topicfs replicas elect --unclean orders/0 /disk2/data",
            "the only disk left lacks records: go on with what it has",
        ),
    ),
)
@click.argument("names", metavar="[TOPIC/PARTITION DIR]", nargs=-1)
@click.option("--preferred", is_flag=True, help="Give the leadership back to the preferred leaders.")
@click.option(
    "--unclean", is_flag=True, help="Let the replica in DIR lead, which was not in sync: records may be lost."
)
@data_option
def elect(names: tuple[str, ...], *, preferred: bool, unclean: bool, directories: tuple[Path, ...]) -> None:
    """Elect leaders. A daemon that owns the directories is asked through its mount."""
    if preferred == unclean or len(names) != (2 if unclean else 0):
        raise click.UsageError("give either --preferred, or --unclean TOPIC/PARTITION DIR")
    with _replication(directories) as owner:
        if preferred:
            for topic in owner.topics():
                owner.write(topic, "elect")
        else:
            topic, number = parse_path(names[0]).topic_partition
            owner.write(topic, f"elect {number} {Path(names[1]).absolute()}")


@replicas.command(
    cls=ExampleCommand,
    examples=(
        ("topicfs replicas move orders/0 /disk3/data", "the only replica of a partition"),
        ("topicfs replicas move orders/0 /disk3/data --from /disk1/data", "one of several"),
        ("topicfs replicas move orders/0 --cancel", "it stays where it is"),
    ),
)
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--from", "source", metavar="DIR", help="The directory of the replica, where there are several."
)
@click.option("--cancel", is_flag=True, help="Have a replica stay that is on its way.")
@data_option
def move(
    partition: str, directory: str | None, *, source: str | None, cancel: bool, directories: tuple[Path, ...]
) -> None:
    """Move a replica to the data directory DIR, while it serves.

    It is copied beside appends, at most at the rate replica.alter.log.dirs.io.max.bytes.per.second of a mount's --config,
    and takes the place of the old one once it has everything; `topicfs replicas list` shows how far it is. A daemon that
    owns the directories does it, and goes on after a restart.
    """
    if cancel == (directory is not None) or (cancel and source is not None):
        raise click.UsageError("move TOPIC/PARTITION DIR [--from DIR], or move TOPIC/PARTITION --cancel")
    topic, number = parse_path(partition).topic_partition
    places = [shlex.quote(str(Path(one).absolute())) for one in (directory, source) if one is not None]
    with _replication(directories) as owner:
        owner.write(topic, " ".join(["cancel" if cancel else "move", str(number), *places]))


@click.command(
    "replicas",
    cls=ExampleCommand,
    examples=(
        (
            "topicfs topics replicas orders 2",
            "a second replica of each partition, in the directory with the fewest",
        ),
        ("topicfs topics replicas orders 1", "only the leaders stay"),
    ),
)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("number", metavar="N", type=click.IntRange(1))
@data_option
def topic_replicas(topic: str, number: int, *, directories: tuple[Path, ...]) -> None:
    """Give each partition of TOPIC N replicas, while it serves: new ones catch up, others go."""
    with _replication(directories) as owner:
        owner.write(topic, str(number))


class _Owner:
    """The one that changes replicas: a daemon through its mount, or this process."""

    def __init__(self, owner: Path | Engine) -> None:
        self._owner = owner

    def topics(self) -> list[str]:
        if isinstance(self._owner, Path):
            return sorted(path.parent.name for path in self._owner.glob("[!@]*/replicas"))
        return list(self._owner.topics())

    def write(self, topic: str, line: str) -> None:
        """Do what a line says that is written to the topic's `replicas`. Raises StorageError, OSError."""
        from topicfs.fusefs.files.replicas import replicas_target

        if not isinstance(self._owner, Path):
            self._owner.topic(topic)
            target = replicas_target(topic, topic, _checked(self._owner.replication))
            target.append(f"{line}\n".encode())
            return
        path = self._owner / topic / "replicas"
        if not path.parent.is_dir():
            raise UnknownTopicError.of(topic)
        if not path.exists():
            raise StorageError(NO_REPLICAS)
        with explained(self._owner, f"{topic}/replicas"), path.open("a") as file:
            file.write(f"{line}\n")


def _checked(replication: Replication | None) -> Replication:
    if replication is None:
        raise StorageError(NO_REPLICAS)
    return replication


@contextmanager
def _replication(directories: tuple[Path, ...]) -> Iterator[_Owner]:
    with opened_or_mounted(directories) as owner:
        yield _Owner(owner)
        if not isinstance(owner, Path) and owner.replication is not None:
            owner.replication.catch_up()
