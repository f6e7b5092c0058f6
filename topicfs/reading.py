"""`topicfs cat`: the mount's files without a mount."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

import click

from fusefs.forms import SUFFIXES, Form, by_suffix
from fusefs.selectors import (
    RangePlace,
    RecordPlace,
    Selector,
    SelectorError,
    Single,
    parse,
    resolve,
)
from fusefs.views.partition_views import PartitionViews
from fusefs.views.records import BatchCutError, earliest_offset, find_record, latest_offset
from storage.disk import names
from storage.engine import Engine, Partition
from storage.errors import StorageError, UnknownTopicError
from storage.model import Isolation, Offset
from topicfs.data_directory import data_option, opened_for_reading
from topicfs.examples import ExampleCommand
from topicfs.lines import say
from topicfs.main import describe
from topicfs.paths import Place, parse_place

WHOLE = "log"
READ_BYTES = 1 << 20
POLL_SECONDS = 0.2
TICK_NS = 100_000_000
"""Nanoseconds; longer than between two times that a kernel gives to files (at most 10 ms)."""
Signature: TypeAlias = tuple[int, ...]
LINKS: dict[str, Callable[..., Offset | None]] = {"earliest": earliest_offset, "latest": latest_offset}


@click.command(
    cls=ExampleCommand,
    short_help="Print records, as the files of a mount do.",
    examples=(
        ("topicfs cat orders/0", "every value of a partition, one a line"),
        ("topicfs cat orders/0/log.json | jq .payload", "with offsets, times, keys and headers"),
        ("topicfs cat orders/0/42", "exactly the value at offset 42"),
        ("topicfs cat orders/0/42-99.kv", "key TAB value of a range"),
        ("topicfs cat orders/0/-10", "the last ten"),
        ("topicfs cat orders/0/log.batch > orders.batches", "the record batches themselves"),
        ("topicfs cat orders/0/@2026-11-21T03:00:00Z-", "from a moment on"),
        ("topicfs cat --follow orders/0/log.json", "and what comes, until Ctrl-C"),
        ("topicfs cat --data /var/lib/kafka/data orders/0", "out of a broker's files, beside the broker"),
    ),
)
@click.argument("places", metavar="TOPIC/PARTITION[/NAME]…", nargs=-1, required=True)
@click.option("--follow", "-f", is_flag=True, help="Go on with the records that are appended later.")
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in Isolation]),
    default=Isolation.READ_COMMITTED.value,
    show_default=True,
    help="Whether records of aborted transactions show.",
)
@data_option
def cat(places: tuple[str, ...], *, follow: bool, isolation: str, directories: tuple[Path, ...]) -> None:
    """Print what the file of that name in a mount holds.

    NAME is log (the default), a record (42, @TIME, earliest, latest) or a range (42-99, 42-, -10, @TIME-@TIME,
    @TIME-), each as it is, with .kv, .json or .batch. Nothing is locked or changed. Beside a running daemon or broker
    what lies below its last checkpoint is shown; for the very latest read its mount.

    At a damaged batch a place ends with what stands before it, an error and exit status 1; the places after it are
    still printed. A range that begins behind the batch shows the rest.
    """
    parsed = [parse_place(place) for place in places]
    if follow and len(parsed) > 1:
        raise click.UsageError("--follow takes one place")
    output = sys.stdout.buffer
    level = Isolation(isolation)
    if follow:
        follow_from(directories, parsed[0], output, level)
        return
    failures: list[StorageError | click.ClickException] = []
    with opened_for_reading(directories) as engine:
        for place in parsed:
            try:
                copy(engine, place, output, level)
            except (StorageError, click.ClickException) as error:
                failures.append(error)
    output.flush()
    for earlier in failures[:-1]:
        say(f"topicfs: {describe(earlier)}", error=True)
    if failures:
        raise failures[-1]


def copy(engine: Engine, place: Place, output: BinaryIO, isolation: Isolation) -> Offset | None:
    """Write a place's content; the offset behind it where it grows with the log, None for all else."""
    topic_partition = place.topic_partition
    partition = engine.partition(*topic_partition)
    suffix = next((suffix for suffix in SUFFIXES if place.name.endswith(suffix)), "")
    stem, form = place.name.removesuffix(suffix), by_suffix(suffix)
    try:
        if stem == WHOLE:
            return _copy_range(
                partition, form, RangePlace(partition.offsets().log_start_offset, None), output, isolation
            )
        selected = _select(partition, place, stem, isolation)
        if isinstance(selected, RangePlace):
            return _copy_range(partition, form, selected, output, isolation)
    except SelectorError as error:
        raise click.ClickException(f"{place.topic}/{place.partition}/{place.name}: {error.reason}") from None
    found = find_record(partition, selected.offset, isolation=isolation)
    if found is not None:
        try:
            output.write(found.render(form, partition))
        except BatchCutError as error:
            raise click.ClickException(f"{place.topic}/{place.partition}/{place.name}: {error}") from None
    return None


def _select(partition: Partition, place: Place, stem: str, isolation: Isolation) -> RecordPlace | RangePlace:
    selector: Selector
    if stem in LINKS:
        offset = LINKS[stem](partition, isolation=isolation)
        if offset is None:
            raise SelectorError("no record is visible")
        selector = Single(offset)
    else:
        selector = parse(place.name)
    return resolve(selector, partition, isolation=isolation)


def _copy_range(
    partition: Partition, form: Form, place: RangePlace, output: BinaryIO, isolation: Isolation
) -> Offset | None:
    end_offset = partition.offsets().visible_end(isolation) if place.end_offset is None else place.end_offset
    output.writelines(contents(partition, form, place.start_offset, end_offset, isolation=isolation))
    return end_offset if place.end_offset is None else None


def contents(
    partition: Partition, form: Form, start_offset: Offset, end_offset: Offset, *, isolation: Isolation
) -> Iterator[bytes]:
    """Give the rendering of [start_offset, end_offset) in pieces of bounded size.

    Raises CorruptionError at a damaged batch, after all that stands before it.
    """
    reader = PartitionViews(partition, isolation=isolation).range(form, start_offset, end_offset).reader()
    position = 0
    while data := reader.read(position, READ_BYTES, short_at_damage=True):
        position += len(data)
        yield data


def follow_from(directories: tuple[Path, ...], place: Place, output: BinaryIO, isolation: Isolation) -> None:
    """Write a place's content and go on with what is appended, until interrupted.

    The one who appends is another process; what it checkpoints is seen here by opening the directories again. They are
    looked at before they are read: what comes in between changes what is seen the next time.
    """
    seen = signature(directories)
    with opened_for_reading(directories) as engine:
        offset = copy(engine, place, output, isolation)
    output.flush()
    if offset is None:
        named = f"{place.topic}/{place.partition}/{place.name}"
        raise click.UsageError(f"{named} is one record; --follow takes log or an open range, as 42-")
    suffix = next((suffix for suffix in SUFFIXES if place.name.endswith(suffix)), "")
    while True:
        time.sleep(POLL_SECONDS)
        present = signature(directories)
        if present is not None and present == seen:
            continue
        seen = present
        rest = Place(place.topic, place.partition, f"{offset}-{suffix}")
        try:
            with opened_for_reading(directories) as engine:
                offset = copy(engine, rest, output, isolation) or offset
        except (UnknownTopicError, FileNotFoundError):
            return
        output.flush()


def signature(directories: tuple[Path, ...]) -> Signature | None:
    """What changes when the owner of the directories checkpointed something or left.

    None where that happened just now, or by a clock that is ahead: a file's time advances by the kernel's tick, and what
    follows within it would change nothing.
    """
    watched = (names.HIGH_WATERMARKS, names.CLEAN_SHUTDOWN, names.LOCK)
    settled_ns = time.time_ns() - TICK_NS
    modified = tuple(_modified(directory / name) for directory in directories for name in watched)
    return modified if max(modified) < settled_ns else None


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
