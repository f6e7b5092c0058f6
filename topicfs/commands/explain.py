"""`topicfs explain`: shows how a record is found, with the numbers of each step."""

from __future__ import annotations

import json
from pathlib import Path

import click

from topicfs.callers import completion
from topicfs.data_directory import opened_for_reading
from topicfs.examples import ExampleCommand
from topicfs.formats.explanation import Explanation, as_json, as_text
from topicfs.fusefs import selectors
from topicfs.fusefs.times import written
from topicfs.inspection.explain import explain_offset, explain_timestamp
from topicfs.options import data_option
from topicfs.paths import parse_path
from topicfs.replication.replicas.partition import ReplicatedPartition
from topicfs.storage.engine import Partition
from topicfs.storage.errors import StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.model import Isolation, Offset, Timestamp
from topicfs.terminal import console


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs explain orders/0/368  # segments, index slots, batches passed, the record
        topicfs explain orders/0/@2026-11-21T03:00:00Z  # the same by time, through both indexes
        topicfs explain orders/0/@2h-  # the first record of the last two hours
        topicfs explain orders/0/42-99  # where a range begins and ends
        topicfs explain --json orders/0/368 | jq .lookups[0].steps  # for programs
    """,
)
@click.argument("name", metavar="TOPIC/PARTITION/SELECTOR", shell_complete=completion.partitions)
@click.option("--json", "as_program", is_flag=True, help="One JSON object in place of text.")
@data_option
def explain(name: str, *, as_program: bool, directories: tuple[Path, ...]) -> None:
    """Explain how a record is found: every step of the lookup, with its numbers.

    The steps are recorded from the search that readers use: which segments exist and which segment was chosen, which
    index slots the binary search read, where reading began, which batches were skipped.
    """
    parsed = parse_path(name)
    with opened_for_reading(directories) as engine:
        partition = engine.partition(*parsed.topic_partition)
        if isinstance(partition, ReplicatedPartition) and partition.leader is not None:
            partition = partition.leader.log
        if not isinstance(partition, Log):
            raise StorageError(f"{name}: {partition.status().state}")
        try:
            explanation = explained(name, selectors.parse(parsed.name), partition)
        except selectors.SelectorError as error:
            raise click.ClickException(str(error)) from None
        if as_program:
            click.echo(json.dumps(as_json(explanation), ensure_ascii=False))
        else:
            screen = console()
            for text in as_text(explanation):
                screen.print(text, soft_wrap=not screen.is_terminal)


def explained(name: str, selector: selectors.Selector, partition: Log) -> Explanation:
    """Explain the lookups of a selector. Raises SelectorError if it selects nothing."""
    isolation = Isolation.READ_COMMITTED
    match selector:
        case selectors.Single(offset):
            selectors.resolve(selector, partition, isolation=isolation)
            lookups = [(f"offset {offset}", explain_offset(partition, offset))]
            meaning = f"the record at offset {offset}"
        case selectors.AtTime(timestamp):
            found = explain_timestamp(partition, timestamp, isolation)
            if found.found is None:
                selectors.resolve(
                    selector, partition, isolation=isolation
                )  # This call raises the error with the reason.
            lookups = [(f"timestamp {timestamp}", found)]
            meaning = f"the first record at or after {_shown(selector, timestamp)}"
        case selectors.TimeRange(start_timestamp, end_timestamp):
            times = [time for time in (start_timestamp, end_timestamp) if time is not None]
            lookups = [(f"timestamp {time}", explain_timestamp(partition, time, isolation)) for time in times]
            meaning = _range_meaning(selector, partition)
            if selector.relative:  # Also name the calendar times.
                until = "" if end_timestamp is None else f" to {_shown(selector, end_timestamp)}"
                meaning += f", from {_shown(selector, start_timestamp)}{until}"
        case selectors.Range() | selectors.LastN():
            place = selectors.resolve(selector, partition, isolation=isolation)
            assert isinstance(place, selectors.SelectedRange)
            end_offset = partition.visible_end(isolation) if place.end_offset is None else place.end_offset
            ends = dict.fromkeys((place.start_offset, Offset(end_offset - 1)))
            wanted = ends if place.start_offset < end_offset else ()
            lookups = [(f"offset {end}", explain_offset(partition, end)) for end in wanted]
            meaning = _range_meaning(selector, partition)
    return Explanation(name, meaning, partition, tuple(lookups))


def _shown(selector: selectors.AtTime | selectors.TimeRange, timestamp: Timestamp) -> str:
    """Return a time as text; a relative time also as a calendar time."""
    return f"{timestamp} ({written(timestamp)})" if selector.relative else str(timestamp)


def _range_meaning(selector: selectors.Selector, partition: Partition) -> str:
    place = selectors.resolve(selector, partition)
    assert isinstance(place, selectors.SelectedRange)
    if place.end_offset is None:
        return f"offsets {place.start_offset} and on"
    if place.end_offset <= place.start_offset:
        return f"no offsets: the range is empty at {place.start_offset}"
    return f"offsets {place.start_offset} to {place.end_offset - 1}"
