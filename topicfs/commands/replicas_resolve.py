"""`topicfs replicas resolve`: directories that were written to independently have one history again."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.options import parse_directories
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import reason_of

if TYPE_CHECKING:
    from topicfs.replication.replicas.healing.comparison import Loss
    from topicfs.replication.replicas.healing.resolution import ReplicaGivenUp, Resolution

_NOT_DONE = (
    "the directories are not resolved yet; repair the disk or make room on it, and run the same command again"
)


@click.command(
    cls=ExampleCommand,
    examples=(
        ("topicfs replicas resolve --keep /disk1/data /disk1/data,/disk2/data", "what would be lost"),
        (
            "topicfs replicas resolve --keep /disk1/data /disk1/data,/disk2/data --save ./lost --yes",
            "save it, and go on with /disk1/data",
        ),
        ("topicfs append orders/0/log.batch", "append what was saved: ./lost/orders-0.batch is its input"),
    ),
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
@click.option("--yes", is_flag=True, help="Do it; otherwise only show what would be lost.")
@click.pass_context
def resolve(
    context: click.Context, directories: tuple[Path, ...], *, keep: Path, save: Path | None, yes: bool
) -> None:
    """Resolve a fork: replica directories that were written to independently.

    It compares the directory DIR of --keep with the others and prints what only the others have: records, topics and
    settings. Without --yes it changes nothing, and the exit status is 1.

    With --yes the others lose that. Their logs are cut where they part from those that are kept, and the next start
    copies the rest. Topics that only they have are deleted then. If it is interrupted run the same command again.

    With --save each partition's lost records are saved in FOLDER/TOPIC-PARTITION.batch, as whole batches, before
    anything is changed. Damaged batches and those of aborted transactions are not saved. Of a topic that is compacted
    it saves every batch of which the other log lacks a record, also if compaction removed that record. --yes needs
    --save if the log that is kept is damaged behind the last batch that both have: the other one is cut there.

    No daemon may serve the directories meanwhile.
    """
    from topicfs.replication.replicas.healing.resolution import Resolution

    with closing(Resolution(directories, keep)) as resolution:
        for place, reason in resolution.left_alone.items():
            say(f"{place}: left alone: {reason}", error=True)
        if not resolution.losers:
            if resolution.left_alone:
                raise StorageError(
                    f"{keep}: no fork with the directories that can be compared; repair the others"
                )
            say(f"{keep}: nothing to resolve: no other directory was written to independently", error=True)
            return
        _show(resolution)
        if resolution.uncompared and not (yes and save):
            remedy = "put the file back, or keep another directory, or go on with --save FOLDER --yes"
            raise StorageError(f"{resolution.uncompared}: what is kept cannot be compared; {remedy}")
        if not yes:
            say(
                "nothing was changed; to go on without this, add --yes, and --save FOLDER to save the records",
                error=True,
            )
            context.exit(1)
        try:
            for path in [] if save is None else resolution.save(save):
                say(f"saved {path}", error=True)
            resolution.apply()
        except OSError as error:
            raise StorageError(f"{reason_of(error)}; {_NOT_DONE}") from error
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
