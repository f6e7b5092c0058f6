"""Groups as text: in the columns of kafka-consumer-groups, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import click

from topicfs.fusefs.groups.positions import spelled_lag
from topicfs.groups.scenarios import Reset
from topicfs.groups.view import SHARE, GroupSummary, GroupView
from topicfs.storage.messages import printable
from topicfs.terminal import is_terminal


def say_table(header: str, rows: Iterable[Sequence[object]]) -> None:
    lines = [header.split(), *([printable(str(field)) for field in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        click.echo(" ".join(field.ljust(width) for field, width in zip(line, widths, strict=True)).rstrip())


def say_json(value: object) -> None:
    click.echo(json.dumps(value, indent=1))


def say_list(groups: Sequence[GroupSummary], *, state: bool) -> None:
    """Print the groups' names (on a terminal, also their kinds) or, with `state`, a table with their states."""
    if state:
        say_table("GROUP STATE TYPE", groups)
    elif groups and is_terminal():
        say_table("NAME KIND", ((one.name, "queue" if one.type == SHARE else "group") for one in groups))
    else:
        for group in groups:
            click.echo(printable(group.name))


def say_positions(group: GroupView) -> None:
    """Print a group's position in each partition, and the partition's reader."""
    rows = []
    for place in group.places:
        member = group.member_of(place.partition)
        reader = ("-", "-") if member is None else (member.member_id, member.reader)
        numbers = (place.shown_position, place.end_offset, spelled_lag(place.lag))
        rows.append((group.name, *place.partition, *numbers, *reader))
    say_table("GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID READER", rows)


def say_members(group: GroupView) -> None:
    rows = (
        (
            group.name,
            one.member_id,
            one.reader,
            len(one.partitions),
            ",".join(map(str, one.topics if group.type == SHARE else one.partitions)) or "-",
        )
        for one in group.members
    )
    say_table("GROUP CONSUMER-ID READER #PARTITIONS ASSIGNMENT", rows)


def say_state(group: GroupView) -> None:
    row = (
        group.name,
        group.coordinator or "-",
        group.assignor or "-",
        group.state,
        group.generation if group.generation >= 0 else "-",
        len(group.members),
        spelled_lag(group.lag),
    )
    say_table("GROUP COORDINATOR ASSIGNMENT-STRATEGY STATE GENERATION #MEMBERS LAG", [row])


def group_object(group: GroupView) -> dict[str, object]:
    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "generation": group.generation,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": group.lag,
        "members": [
            {
                "member_id": one.member_id,
                "reader": one.reader,
                "topics": list(one.topics),
                "partitions": [partition._asdict() for partition in one.partitions],
            }
            for one in group.members
        ],
        "positions": [
            {
                **place.partition._asdict(),
                "position": place.position,
                "end_offset": place.end_offset,
                "lag": place.lag,
                "committed_by": place.committed_by,
            }
            for place in group.places
        ],
    }


def say_resets(group: str, resets: Sequence[Reset]) -> None:
    rows = ((group, *one.partition, one.offset) for one in resets)
    say_table("GROUP TOPIC PARTITION NEW-OFFSET", rows)


def resets_object(group: str, resets: Sequence[Reset]) -> list[dict[str, object]]:
    return [
        {"group": group, **one.partition._asdict(), "before": one.before, "offset": one.offset}
        for one in resets
    ]
