"""`topicfs replicas` and `topicfs topics replicas`: show replicas, and change their number and directories."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.callers import completion
from topicfs.coordination.engine import Engine
from topicfs.data_directory import NO_REPLICAS, opened_for_reading, opened_or_mounted
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.lines import say
from topicfs.mounted import explained
from topicfs.options import data_option, parse_directories
from topicfs.paths import parse_path
from topicfs.storage.errors import StorageError, UnknownTopicError
from topicfs.storage.messages import reason_of

if TYPE_CHECKING:
    from topicfs.replication.replicas.healing.comparison import Loss
    from topicfs.replication.replicas.healing.resolution import ReplicaGivenUp, Resolution


@click.group(
    cls=ExampleGroup,
    examples="""
        topicfs replicas list  # where the replicas of each partition are
        topicfs replicas elect --preferred  # after a disk came back: let its replicas lead again
        topicfs replicas move orders/0 /disk3/data  # to another disk, while it serves
    """,
)
def replicas() -> None:
    """Show replicas, elect leaders, and move replicas.

    In a mount, read MOUNT/orders/replicas and write to it instead.
    """


@replicas.command(
    "list",
    cls=ExampleCommand,
    examples="""
        topicfs replicas list --data /disk1/data,/disk2/data  # of all topics
        topicfs replicas list orders  # of one
    """,
)
@click.argument("topics", metavar="[TOPIC]…", nargs=-1, shell_complete=completion.topics)
@data_option
def list_replicas(topics: tuple[str, ...], *, directories: tuple[Path, ...]) -> None:
    """List the replicas of each partition: directory, role, log end, and lag behind the leader."""
    from topicfs.fusefs.files.replicas import replica_lines

    with opened_for_reading(directories) as engine:
        wanted = {name: engine.topic(name) for name in topics} or engine.topics()
        for name, topic in wanted.items():
            for number, partition in topic.partitions().items():
                for line in replica_lines(partition.status()):
                    say(f"{name}/{number} {line}")


@replicas.command(
    cls=ExampleCommand,
    examples="""
        topicfs replicas elect --preferred  # the first assigned replicas lead, where they are in sync
        # the only disk left lacks records: go on with what it has
        topicfs replicas elect --unclean orders/0 /disk2/data
    """,
)
@click.argument("names", metavar="[TOPIC/PARTITION DIR]", nargs=-1)
@click.option("--preferred", is_flag=True, help="Make the preferred replicas leaders again.")
@click.option("--unclean", is_flag=True, help="Let an out-of-sync replica in DIR lead: records may be lost.")
@data_option
def elect(names: tuple[str, ...], *, preferred: bool, unclean: bool, directories: tuple[Path, ...]) -> None:
    """Elect leaders, through the mount if a daemon owns the directories."""
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
    examples="""
        topicfs replicas move orders/0 /disk3/data  # the only replica of a partition
        topicfs replicas move orders/0 /disk3/data --from /disk1/data  # one of several
        topicfs replicas move orders/0 --cancel  # it stays where it is
    """,
)
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--from", "source", metavar="DIR", help="The directory of the replica, if there are several.")
@click.option("--cancel", is_flag=True, help="Cancel the move of a replica.")
@data_option
def move(
    partition: str, directory: str | None, *, source: str | None, cancel: bool, directories: tuple[Path, ...]
) -> None:
    """Move a replica to the data directory DIR while the partition is in use.

    The replica is copied in the background, at most at replica.alter.log.dirs.io.max.bytes.per.second of a mount's
    --config, and replaces the old replica when the copy is complete; `topicfs replicas list` shows its progress. If a
    daemon owns the directories, the daemon copies, and continues after a restart.
    """
    if cancel == (directory is not None) or (cancel and source is not None):
        raise click.UsageError("give either DIR [--from DIR], or --cancel")
    topic, number = parse_path(partition).topic_partition
    places = [shlex.quote(str(Path(one).absolute())) for one in (directory, source) if one is not None]
    with _replication(directories) as owner:
        owner.write(topic, " ".join(["cancel" if cancel else "move", str(number), *places]))


@click.command(
    "replicas",
    cls=ExampleCommand,
    examples="""
        topicfs topics replicas orders 2  # a second replica of each partition, in the directory with the fewest
        topicfs topics replicas orders 1  # only the leaders stay
    """,
)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("number", metavar="N", type=click.IntRange(1))
@data_option
def topic_replicas(topic: str, number: int, *, directories: tuple[Path, ...]) -> None:
    """Set the number of replicas of TOPIC to N while it is in use: new replicas catch up, surplus ones are removed."""
    with _replication(directories) as owner:
        owner.write(topic, str(number))


class _Owner:
    """The owner of the directories, which changes the replicas: either a daemon, through its mount, or this process."""

    def __init__(self, owner: Path | Engine) -> None:
        self._owner = owner

    def topics(self) -> list[str]:
        if isinstance(self._owner, Path):
            return sorted(path.parent.name for path in self._owner.glob("[!@]*/replicas"))
        return list(self._owner.topics())

    def write(self, topic: str, line: str) -> None:
        """Execute a line as the topic's `replicas` file does. Raises StorageError, OSError."""
        from topicfs.fusefs.files.replicas import replicas_target

        if not isinstance(self._owner, Path):
            self._owner.topic(topic)
            if self._owner.replication is None:
                raise StorageError(NO_REPLICAS)
            replicas_target(topic, topic, self._owner.replication).append(f"{line}\n".encode())
            return
        path = self._owner / topic / "replicas"
        if not path.parent.is_dir():
            raise UnknownTopicError.of(topic)
        if not path.exists():
            raise StorageError(NO_REPLICAS)
        with explained(self._owner, f"{topic}/replicas"), path.open("a") as file:
            file.write(f"{line}\n")


@contextmanager
def _replication(directories: tuple[Path, ...]) -> Iterator[_Owner]:
    with opened_or_mounted(directories) as owner:
        yield _Owner(owner)
        if not isinstance(owner, Path) and owner.replication is not None:
            owner.replication.catch_up()


@replicas.command(
    cls=ExampleCommand,
    examples="""
        topicfs replicas resolve --keep /disk1/data /disk1/data,/disk2/data  # what would be lost
        # save it, and go on with /disk1/data
        topicfs replicas resolve --keep /disk1/data /disk1/data,/disk2/data --save ./lost --yes
        topicfs append orders/0/log.batch  # append what was saved: ./lost/orders-0.batch is its input
    """,
)
@click.option(
    "--keep",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The directory whose records, topics and settings are kept.",
)
@click.argument("directories", metavar="DIR,DIR", type=parse_directories)
@click.option(
    "--save",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --yes: save first the records that would be lost, one file per partition.",
)
@click.option("--yes", is_flag=True, help="Make the changes; otherwise only show what would be lost.")
@click.pass_context
def resolve(
    context: click.Context, directories: tuple[Path, ...], *, keep: Path, save: Path | None, yes: bool
) -> None:
    """Resolve a fork: replica directories that were written to independently.

    Compares the directory DIR of --keep with the other directories, and prints records, topics and settings that only
    the other directories have. Without --yes nothing is changed, and the exit status is 1.

    With --yes, the other directories lose these records, topics and settings. Their logs are truncated where they
    differ from the kept logs, and the next start copies the rest. Topics that only they have are deleted at that
    start. After an interruption, run the same command again.

    With --save, the lost records of each partition are first saved in FOLDER/TOPIC-PARTITION.batch, as whole batches.
    Damaged batches and batches of aborted transactions are not saved. For a compacted topic, every batch is saved of
    which the kept log lacks a record, even if compaction removed that record. --yes requires --save if the kept log
    is damaged after the last batch that both logs have, because the other log is truncated there.

    While this command runs, no daemon may serve the directories.
    """
    from topicfs.replication.replicas.healing.resolution import Resolution

    with closing(Resolution(directories, keep)) as resolution:
        for place, reason in resolution.left_alone.items():
            say(f"{place}: skipped: {reason}", error=True)
        if not resolution.losers:
            if resolution.left_alone:
                raise StorageError(
                    f"{keep}: no fork with the directories that can be compared; repair the other directories"
                )
            say(f"{keep}: nothing to resolve: no other directory was written to independently", error=True)
            return
        _show(resolution)
        if resolution.uncompared and not (yes and save):
            remedy = "put the file back, or keep another directory, or go on with --save FOLDER --yes"
            raise StorageError(f"{resolution.uncompared}: the kept files cannot be compared; {remedy}")
        if not yes:
            say(
                "nothing was changed; to give this up, add --yes, and --save FOLDER to save the records",
                error=True,
            )
            context.exit(1)
        try:
            for path in [] if save is None else resolution.save(save):
                say(f"saved {path}", error=True)
            resolution.apply()
        except OSError as error:
            remedy = "repair the disk or free space on it, and run the same command again"
            raise StorageError(f"{reason_of(error)}; the fork is not resolved yet; {remedy}") from error
        say(
            f"{keep} is kept; the next start copies it to {', '.join(map(str, resolution.losers))}",
            error=True,
        )


def _show(resolution: Resolution) -> None:
    for one, loss in resolution.losses():
        say(_line(one, loss))
    for loser, name in resolution.topics_given_up().values():
        say(f"{name}: the topic is only in {loser}, and would be deleted")
    for line in resolution.settings_given_up():
        say(line)


def _line(one: ReplicaGivenUp, loss: Loss) -> str:
    where = f"{one.partition.topic}/{one.partition.partition}"
    told = []
    if loss.records:
        times = f"{_time(loss.first_ms)} to {_time(loss.last_ms)}"
        told.append(f"{loss.records} records, offsets {loss.first_offset} to {loss.end_offset - 1}, {times}")
    if loss.damaged:
        told.append(f"{loss.damaged} batches of them damaged")
    if loss.problem:
        told.append(loss.problem)
    return f"{where}: only in {one.directory}: {'; '.join(told)}"


def _time(milliseconds: int) -> str:
    if not 0 <= milliseconds <= 253_402_300_799_999:
        return "an unknown time"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "seconds")
