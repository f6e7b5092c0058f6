"""`topicfs groups`: list, describe, reset and delete groups, beside a daemon or without one."""

from __future__ import annotations

import click

from topicfs.callers import completion
from topicfs.commands.groups_reset import reset
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.groups.location import opened_groups
from topicfs.groups.output import group_object, say_json, say_list, say_members, say_positions, say_state
from topicfs.groups.scenarios import parse_topics
from topicfs.groups.view import SHARE
from topicfs.lines import say
from topicfs.options import place_option
from topicfs.places import Place
from topicfs.storage.errors import InvalidPositionError, StorageError


@click.group(
    cls=ExampleGroup,
    examples=(
        ("topicfs groups list", "the groups there are"),
        ("topicfs groups describe billing", "positions, lag and readers"),
        ("topicfs groups reset billing --topic orders --to-earliest", "read everything again"),
        ("topicfs groups delete billing", "forget a group and its positions"),
    ),
)
def groups() -> None:
    """List, describe, reset and delete groups of readers and queues, in the words of kafka-consumer-groups.

    A group has one position in each partition, kept in __consumer_offsets as a broker keeps it; that of a queue (share
    group) is its start offset. While a daemon owns the directory this goes through its mount, where groups are files:
    MOUNT/@groups/billing/orders/0/position. Queues are reset while no daemon owns the directory.
    """


groups.add_command(reset)


@groups.command(
    "list",
    cls=ExampleCommand,
    examples=(
        ("topicfs groups list", "a name a line"),
        ("topicfs groups list --state", "and whether anybody reads, and which are queues"),
        ("topicfs groups list --json | jq -c .[]", "for programs"),
    ),
)
@click.option("--state", is_flag=True, help="With each group's state (Empty, Stable, …) and type.")
@click.option("--json", "as_program", is_flag=True, help="One JSON array.")
@place_option
def list_groups(*, state: bool, as_program: bool, place: Place) -> None:
    """List groups."""
    with opened_groups(place) as found:
        listed = found.listed()
    if as_program:
        say_json([{"group": one.name, "state": one.state, "type": one.type} for one in listed])
    else:
        say_list(listed, state=state)


@groups.command(
    cls=ExampleCommand,
    examples=(
        ("topicfs groups describe billing", "position, end and lag of each partition, and who reads it"),
        ("topicfs groups describe billing --members", "who reads what"),
        ("topicfs groups describe billing --state", "state, generation, assignor, lag in all"),
        ("topicfs groups describe billing --json | jq .lag", "for programs"),
    ),
)
@click.argument("names", metavar="GROUP…", nargs=-1, required=True, shell_complete=completion.groups)
@click.option("--members", "what", flag_value="members", help="The members in place of the positions.")
@click.option("--state", "what", flag_value="state", help="The group as a whole in place of the positions.")
@click.option("--json", "as_program", is_flag=True, help="One JSON array with all of it.")
@place_option
def describe(names: tuple[str, ...], *, what: str | None, as_program: bool, place: Place) -> None:
    """Describe groups: where each stands, how far that is from the end, and who reads."""
    with opened_groups(place) as found:
        described = [found.describe(name) for name in names]
    if as_program:
        say_json([group_object(group) for group in described])
        return
    show = {"members": say_members, "state": say_state}.get(what or "", say_positions)
    for group in described:
        show(group)


@groups.command(
    cls=ExampleCommand,
    examples=(
        ("topicfs groups delete billing", "a group without members, with its positions"),
        ("topicfs groups delete billing --topic orders", "its positions in one topic alone"),
    ),
)
@click.argument("names", metavar="GROUP…", nargs=-1, required=True, shell_complete=completion.groups)
@click.option(
    "--topic", "topics", metavar="TOPIC[:N,N]", multiple=True, help="Only the positions in this topic."
)
@place_option
def delete(names: tuple[str, ...], *, topics: tuple[str, ...], place: Place) -> None:
    """Delete groups that have no members; beside a daemon its mount must allow it (--allow-delete)."""
    with opened_groups(place, writing=True) as found:
        described = {name: found.describe(name) for name in names}
        if topics and (queues := [name for name, one in described.items() if one.type == SHARE]):
            raise StorageError(f"{', '.join(queues)}: a queue is deleted as a whole; leave out --topic")
        for name, group in described.items():
            if not topics:
                found.delete(name)
                say(f"{name}: deleted")
                continue
            partitions = [one for one in parse_topics(found, topics) if one in group.positions]
            if not partitions:
                raise InvalidPositionError(f"{name}: no positions in {', '.join(topics)}")
            found.delete_positions(name, partitions)
            say(f"{name}: {len(partitions)} position{'s' * (len(partitions) != 1)} deleted")
