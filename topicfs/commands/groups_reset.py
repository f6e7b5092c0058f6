"""`topicfs groups reset`: set the positions of a group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from topicfs.callers import completion
from topicfs.examples import ExampleCommand
from topicfs.groups.location import opened_groups
from topicfs.groups.output import resets_object, say_json, say_resets
from topicfs.groups.scenarios import (
    Reset,
    Scenario,
    export,
    parse_datetime,
    parse_duration,
    parse_export,
    parse_topics,
    plan,
    shift_by,
    to_current,
    to_earliest,
    to_latest,
    to_offset,
    to_time,
)
from topicfs.groups.view import EMPTY, GroupsPlace, GroupView
from topicfs.options import place_option
from topicfs.places import Place
from topicfs.storage.disk.native import system_clock
from topicfs.storage.errors import GroupNotEmptyError, InvalidPositionError, UnknownGroupError
from topicfs.storage.model import Offset, Timestamp, TopicPartition


@click.command(
    cls=ExampleCommand,
    examples=(
        ("topicfs groups reset billing --topic orders --to-earliest", "everything again"),
        (
            "topicfs groups reset billing --topic orders:0,2 --shift-by -100",
            "the last hundred of two partitions",
        ),
        ("topicfs groups reset billing --all-topics --to-datetime 2026-11-24T00:00:00Z", "from a moment on"),
        ("topicfs groups reset billing --all-topics --by-duration PT1H --dry-run", "only say where that is"),
        (
            "topicfs groups reset billing --all-topics --to-current --dry-run --export > positions.csv",
            "keep positions",
        ),
        ("topicfs groups reset billing --from-file positions.csv", "and take them back"),
    ),
)
@click.argument("name", metavar="GROUP", shell_complete=completion.groups)
@click.option("--topic", "topics", metavar="TOPIC[:N,N]", multiple=True, help="A topic, or partitions of it.")
@click.option("--all-topics", is_flag=True, help="Every topic in which the group has a position.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end: only what comes.")
@click.option(
    "--to-current", is_flag=True, help="Where it is; what lies outside of the log is brought within."
)
@click.option("--to-offset", metavar="N", type=click.IntRange(0), help="To an offset.")
@click.option("--shift-by", metavar="N", type=int, help="Forward, or with -N back.")
@click.option(
    "--to-datetime", metavar="TIME", help="To the first record at or after a time, UTC without a zone."
)
@click.option("--by-duration", metavar="DURATION", help="To the first record of the last P1D, PT6H, …")
@click.option("--from-file", "file", metavar="FILE", type=click.Path(path_type=Path), help="As exported.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and say what would be.")
@click.option(
    "--execute", is_flag=True, hidden=True, help="As Kafka's tool wants it; here it is done without."
)
@click.option("--export", "as_csv", is_flag=True, help="Print topic,partition,offset.")
@click.option("--json", "as_program", is_flag=True, help="Print one JSON array.")
@place_option
def reset(
    name: str,
    *,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    file: Path | None,
    dry_run: bool,
    execute: bool,
    as_csv: bool,
    as_program: bool,
    place: Place,
) -> None:
    """Set positions of a group that has no members, or none yet.

    One word says where to: a position beyond the log's start or end becomes that.
    """
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute contradict each other")
    given = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": file,
    }
    chosen = {word: value for word, value in given.items() if value not in (None, False)}
    if len(chosen) != 1:
        raise click.UsageError(f"name one new position: {', '.join(given)}")
    if bool(topics) + all_topics + (file is not None) != 1:
        raise click.UsageError("choose the partitions by one of --topic, --all-topics, --from-file")
    (word, value), *_ = chosen.items()
    with opened_groups(place, writing=not dry_run) as found:
        group = _group(found, name)
        if group is not None and group.state != EMPTY and not dry_run:
            members = f"{len(group.members)} members"
            raise GroupNotEmptyError(f"{name}: {members}; its positions are theirs until they have gone")
        present = {} if group is None else group.positions
        if file is not None:
            resets = _from_file(found, file, present)
        else:
            partitions = sorted(present) if all_topics else parse_topics(found, topics)
            resets = plan(found, _scenario(word, value), partitions, present)
        if resets and not dry_run:
            found.set_positions(name, {one.partition: one.offset for one in resets})
    if as_csv:
        click.echo(export(resets), nl=False)
    elif as_program:
        say_json(resets_object(name, resets))
    else:
        say_resets(name, resets)


def _from_file(place: GroupsPlace, file: Path, present: Mapping[TopicPartition, Offset]) -> list[Reset]:
    try:
        asked = parse_export(file.read_text())
    except InvalidPositionError as error:
        raise InvalidPositionError(f"{file}: {error}") from None
    there = parse_topics(place, [f"{topic}:{number}" for topic, number in asked])
    return [
        one for partition in there for one in plan(place, to_offset(asked[partition]), [partition], present)
    ]


def _group(place: GroupsPlace, name: str) -> GroupView | None:
    """Return the group; None for one that the reset makes."""
    try:
        return place.describe(name)
    except UnknownGroupError:
        return None


def _scenario(word: str, value: object) -> Scenario:
    """Return what a word means. Raises InvalidPositionError."""
    fixed: dict[str, Scenario] = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
    }
    if word in fixed:
        return fixed[word]
    if isinstance(value, int):
        return to_offset(value) if word == "--to-offset" else shift_by(value)
    if word == "--to-datetime":
        return to_time(parse_datetime(str(value)))
    return to_time(Timestamp(system_clock() - parse_duration(str(value))))
