"""`topicfs explain`: the way from a name to a record, with the real numbers."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fusefs.selectors import (
    AtTime,
    LastN,
    Range,
    RangePlace,
    Selector,
    SelectorError,
    Single,
    TimeRange,
    parse,
    resolve,
)
from storage.engine import Partition
from storage.errors import StorageError
from storage.inspect.explain import Lookup, explain_offset, explain_timestamp
from storage.log.log import Log
from storage.model import Isolation, Offset
from topicfs.data_directory import data_option, opened_for_reading
from topicfs.examples import ExampleCommand
from topicfs.explanation import Explanation, as_json, as_text
from topicfs.paths import parse_path
from topicfs.terminal import console


@click.command(
    cls=ExampleCommand,
    short_help="Explain step by step how a record is found.",
    examples=(
        ("topicfs explain orders/0/368", "segments, index slots, batches passed, the record"),
        ("topicfs explain orders/0/@2026-11-21T03:00:00Z", "the same by time: through both indexes"),
        ("topicfs explain orders/0/42-99", "where a range begins and ends"),
        ("topicfs explain --json orders/0/368 | jq .lookups[0].steps", "for programs"),
    ),
)
@click.argument("place", metavar="TOPIC/PARTITION/SELECTOR")
@click.option("--json", "as_program", is_flag=True, help="One JSON object in place of text.")
@data_option
def explain(place: str, *, as_program: bool, directories: tuple[Path, ...]) -> None:
    """Explain how a record is found: every step of the lookup, with the numbers it met.

    The steps are those of the search that readers use, not a retelling: which segments there are and which one was
    chosen, which slots of its index the binary search looked at, where reading began, which batches were passed.
    """
    parsed = parse_path(place)
    with opened_for_reading(directories) as engine:
        partition = engine.partition(*parsed.topic_partition)
        if not isinstance(partition, Log):
            raise StorageError(f"{place}: {partition.status().state}")
        try:
            selector = parse(parsed.name)
            explanation = explained(place, selector, partition)
        except SelectorError as error:
            raise click.ClickException(error.reason) from None
        if as_program:
            click.echo(json.dumps(as_json(explanation), ensure_ascii=False))
        else:
            screen = console()
            for text in as_text(explanation):
                screen.print(text)


def explained(name: str, selector: Selector, log: Log) -> Explanation:
    """Explain the lookups of a selector. Raises SelectorError where it names nothing."""
    isolation = Isolation.READ_COMMITTED
    match selector:
        case Single(offset):
            resolve(selector, log, isolation=isolation)
            return Explanation(name, f"the record at offset {offset}", log, (_offset(log, offset),))
        case AtTime(timestamp):
            resolve(selector, log, isolation=isolation)
            lookup = explain_timestamp(log, timestamp, isolation)
            meaning = f"the first record at or after {timestamp}"
            return Explanation(name, meaning, log, ((f"timestamp {timestamp}", lookup),))
        case TimeRange(start_timestamp, end_timestamp):
            times = [time for time in (start_timestamp, end_timestamp) if time is not None]
            lookups = tuple((f"timestamp {time}", explain_timestamp(log, time, isolation)) for time in times)
            return Explanation(name, _range_meaning(selector, log), log, lookups)
        case Range() | LastN():
            place = resolve(selector, log, isolation=isolation)
            assert isinstance(place, RangePlace)
            end_offset = log.visible_end(isolation) if place.end_offset is None else place.end_offset
            ends = (
                dict.fromkeys((place.start_offset, Offset(end_offset - 1)))
                if place.start_offset < end_offset
                else ()
            )
            return Explanation(
                name, _range_meaning(selector, log), log, tuple(_offset(log, end) for end in ends)
            )


def _offset(log: Log, offset: Offset) -> tuple[str, Lookup]:
    return f"offset {offset}", explain_offset(log, offset)


def _range_meaning(selector: Selector, partition: Partition) -> str:
    place = resolve(selector, partition)
    assert isinstance(place, RangePlace)
    if place.end_offset is None:
        return f"offsets {place.start_offset} and on"
    if place.end_offset <= place.start_offset:
        return f"no offsets: the range is empty at {place.start_offset}"
    return f"offsets {place.start_offset} to {place.end_offset - 1}"
