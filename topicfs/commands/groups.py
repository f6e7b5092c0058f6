"""`topicfs groups`: lists, describes, resets and deletes groups, whether or not a daemon owns the directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from topicfs.callers import completion
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.groups import output, scenarios
from topicfs.groups.location import opened_groups
from topicfs.groups.view import EMPTY, SHARE, GroupAdmin, GroupView
from topicfs.lines import say
from topicfs.options import place_option
from topicfs.places import Place
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import GroupNotEmptyError, InvalidPositionError, StorageError, UnknownGroupError
from topicfs.storage.model import Offset, Timestamp, TopicPartition


@click.group(
    cls=ExampleGroup,
    examples="""
        topicfs groups list  # all groups
        topicfs groups describe billing  # positions, lag and readers
        topicfs groups reset billing --topic orders --to-earliest  # read everything again
        topicfs groups delete billing  # delete a group and its positions
    """,
)
def groups() -> None:
    """List, describe, reset and delete groups of readers and queues, in the words of kafka-consumer-groups.

    A group has one position in each partition, kept in __consumer_offsets as a broker keeps it. The position of a
    queue (share group) is its start offset. While a daemon owns the directory, this command works through its mount,
    where groups are files: MOUNT/@groups/billing/orders/0/position. Queues can be reset only while no daemon owns the
    directory.
    """


@groups.command(
    "list",
    cls=ExampleCommand,
    examples="""
        topicfs groups list  # one name per line; on a terminal, also whether it is a group or a queue
        topicfs groups list --state  # with their states and types
        topicfs groups list --json | jq -c .[]  # for programs
    """,
)
@click.option("--state", is_flag=True, help="Also show each group's state (Empty, Stable, …) and type.")
@click.option("--json", "as_program", is_flag=True, help="One JSON array.")
@place_option
def list_groups(*, state: bool, as_program: bool, place: Place) -> None:
    """List groups."""
    with opened_groups(place) as found:
        listed = found.listed()
    if as_program:
        output.say_json([{"group": one.name, "state": one.state, "type": one.type} for one in listed])
    else:
        output.say_list(listed, state=state)


@groups.command(
    cls=ExampleCommand,
    examples="""
        topicfs groups describe billing  # position, end and lag of each partition, and who reads it
        topicfs groups describe billing --members  # each reader's partitions
        topicfs groups describe billing --state  # state, generation, assignor, total lag
        topicfs groups describe billing --json | jq .lag  # for programs
    """,
)
@click.argument("names", metavar="GROUP…", nargs=-1, required=True, shell_complete=completion.groups)
@click.option("--members", "what", flag_value="members", help="Show the members instead of the positions.")
@click.option(
    "--state", "what", flag_value="state", help="Show the group as a whole instead of the positions."
)
@click.option("--json", "as_program", is_flag=True, help="One JSON array with everything.")
@place_option
def describe(names: tuple[str, ...], *, what: str | None, as_program: bool, place: Place) -> None:
    """Describe groups: their positions, their lag, and their readers."""
    with opened_groups(place) as found:
        described = [found.describe(name) for name in names]
    if as_program:
        output.say_json([output.group_object(group) for group in described])
        return
    show = {"members": output.say_members, "state": output.say_state}.get(what or "", output.say_positions)
    for group in described:
        show(group)


@groups.command(
    cls=ExampleCommand,
    examples="""
        topicfs groups delete billing  # a group without members, with its positions
        topicfs groups delete billing --topic orders  # only its positions in one topic
    """,
)
@click.argument("names", metavar="GROUP…", nargs=-1, required=True, shell_complete=completion.groups)
@click.option(
    "--topic", "topics", metavar="TOPIC[:N,N]", multiple=True, help="Delete only the positions in this topic."
)
@place_option
def delete(names: tuple[str, ...], *, topics: tuple[str, ...], place: Place) -> None:
    """Delete groups without members; a daemon's mount must allow it (--allow-delete)."""
    with opened_groups(place, writing=True) as found:
        described = {name: found.describe(name) for name in names}
        if topics and (queues := [name for name, one in described.items() if one.type == SHARE]):
            raise StorageError(f"{', '.join(queues)}: a queue is deleted as a whole; leave out --topic")
        for name, group in described.items():
            if not topics:
                found.delete(name)
                say(f"{name}: deleted")
                continue
            partitions = [one for one in scenarios.parse_topics(found, topics) if one in group.positions]
            if not partitions:
                raise InvalidPositionError(f"{name}: no positions in {', '.join(topics)}")
            found.delete_positions(name, partitions)
            say(f"{name}: {len(partitions)} position{'s' * (len(partitions) != 1)} deleted")


SCENARIOS: dict[str, Callable[[Any], scenarios.Scenario]] = {
    "to_earliest": lambda _: scenarios.to_earliest,
    "to_latest": lambda _: scenarios.to_latest,
    "to_current": lambda _: scenarios.to_current,
    "to_offset": scenarios.to_offset,
    "shift_by": scenarios.shift_by,
    "to_datetime": lambda text: scenarios.to_time(scenarios.parse_datetime(text)),
    "by_duration": lambda text: scenarios.to_time(Timestamp(system_clock() - scenarios.parse_duration(text))),
}
"""Functions that make the scenario of each option of `reset`, by the option's name."""


@groups.command(
    cls=ExampleCommand,
    examples="""
        topicfs groups reset billing --topic orders --to-earliest  # everything again
        topicfs groups reset billing --topic orders:0,2 --shift-by -100  # the last hundred of two partitions
        topicfs groups reset billing --all-topics --to-datetime 2026-11-24T00:00:00Z  # from a moment on
        topicfs groups reset billing --all-topics --by-duration PT1H --dry-run  # only show the new positions
        topicfs groups reset billing --all-topics --to-current --dry-run --export > positions.csv  # save positions
        topicfs groups reset billing --from-file positions.csv  # and restore them
    """,
)
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@click.option("--topic", "topics", metavar="TOPIC[:N,N]", multiple=True, help="A topic, or partitions of it.")
@click.option("--all-topics", is_flag=True, help="Every topic in which the group has a position.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end: read only new records.")
@click.option("--to-current", is_flag=True, help="To the current position, clamped to the log.")
@click.option("--to-offset", metavar="N", type=click.IntRange(0), help="To an offset.")
@click.option("--shift-by", metavar="N", type=int, help="Move forward, or with -N back.")
@click.option(
    "--to-datetime", metavar="TIME", help="To the first record at or after a time, UTC without a zone."
)
@click.option("--by-duration", metavar="DURATION", help="To the first record of the last day (P1D), …")
@click.option("--from-file", "file", metavar="FILE", type=click.Path(path_type=Path), help="As exported.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and show the new positions.")
@click.option(
    "--execute", is_flag=True, hidden=True, help="Accepted as in Kafka's tool; this is the default here."
)
@click.option("--export", "as_csv", is_flag=True, help="Print topic,partition,offset.")
@click.option("--json", "as_program", is_flag=True, help="Print one JSON array.")
@place_option
def reset(
    name: str,
    *,
    topics: tuple[str, ...],
    all_topics: bool,
    file: Path | None,
    dry_run: bool,
    execute: bool,
    as_csv: bool,
    as_program: bool,
    place: Place,
    **given: Any,
) -> None:
    """Set positions of a group without members, or of a new group.

    Exactly one option selects the new position; a position outside the log is moved to its start or end.
    """
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute cannot be combined")
    chosen = [word for word in SCENARIOS if given[word] is not None and given[word] is not False]
    if len(chosen) + (file is not None) != 1:
        words = ", ".join(f"--{word.replace('_', '-')}" for word in (*SCENARIOS, "from_file"))
        raise click.UsageError(f"name one new position: {words}")
    if bool(topics) + all_topics + (file is not None) != 1:
        raise click.UsageError("choose the partitions with one of --topic, --all-topics, --from-file")
    with opened_groups(place, writing=not dry_run) as found:
        try:
            group: GroupView | None = found.describe(name)
        except UnknownGroupError:  # The reset creates the group.
            group = None
        if group is not None and group.state != EMPTY and not dry_run:
            members = f"{len(group.members)} members"
            raise GroupNotEmptyError(
                f"{name}: {members}; positions can only be set after the members have left"
            )
        present = {} if group is None else group.positions
        if file is not None:
            resets = _from_file(found, file, present)
        else:
            partitions = sorted(present) if all_topics else scenarios.parse_topics(found, topics)
            scenario = SCENARIOS[chosen[0]](given[chosen[0]])
            resets = scenarios.plan(found, scenario, partitions, present)
        if resets and not dry_run:
            found.set_positions(name, {one.partition: one.offset for one in resets})
    if as_csv:
        click.echo(scenarios.export(resets), nl=False)
    elif as_program:
        output.say_json(output.resets_object(name, resets))
    else:
        output.say_resets(name, resets)


def _from_file(
    groups: GroupAdmin, file: Path, present: Mapping[TopicPartition, Offset]
) -> list[scenarios.Reset]:
    try:
        asked = scenarios.parse_export(file.read_text())
    except InvalidPositionError as error:
        raise InvalidPositionError(f"{file}: {error}") from None
    there = scenarios.parse_topics(groups, [f"{topic}:{number}" for topic, number in asked])
    return [
        one
        for partition in there
        for one in scenarios.plan(groups, scenarios.to_offset(asked[partition]), [partition], present)
    ]
