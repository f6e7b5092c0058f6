"""`topicfs append`: lines into a topic without a mount."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import click

from fusefs.appending.framing import NOTHING, frame
from fusefs.appending.partitioners import KafkaPartitioner
from fusefs.appending.targets import DoorTarget, Encoder, LineTarget, PartitionTarget
from fusefs.forms import FormError, by_suffix
from fusefs.reports import Reports
from storage.disk.native import system_clock
from storage.engine import Engine
from storage.errors import InvalidNameError, PolicyViolationError, RecordTooLargeError, StorageError
from topicfs.data_directory import data_option, opened_for_writing
from topicfs.examples import ExampleCommand
from topicfs.paths import Place, parse_place

DOORS = ("log", "log.kv", "log.json")
BLOCK_BYTES = 1 << 20
"""Read and appended at a time: what the kernel would hand to the mount in one request."""


class LinesRefusedError(StorageError):
    """A line that is no record."""


@click.command(
    cls=ExampleCommand,
    short_help="Append lines to a topic.",
    examples=(
        ("echo hello | topicfs append orders/0", "a line is a record"),
        ("topicfs append orders/0 /var/log/dpkg.log", "a file: all its lines, or none if one is no record"),
        ("printf 'k1\\tv1\\n' | topicfs append orders/log.kv", "key TAB value; the key picks the partition"),
        (
            "topicfs cat orders/0/log.json | topicfs append copy/0/log.json",
            "a copy with times, keys and headers",
        ),
    ),
)
@click.argument("target", metavar="TOPIC[/PARTITION][/NAME]")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@data_option
def append(target: str, *, file: Path, directory: Path) -> None:
    """Append the lines of FILE, or of standard input, to a topic.

    NAME is log (a line is a value; the default), log.kv or log.json. A FILE is looked through before its first
    record is appended: a line that is no record refuses it as a whole. Standard input is appended as it comes. When
    the command ends, everything is on disk. While a daemon owns the directory, append through its mount.
    """
    place = parse_place(target)
    if place.name not in DOORS:
        raise InvalidNameError(f"{target}: records are appended to {', '.join(DOORS)}")
    source = "-" if str(file) == "-" else str(file)
    path = f"{place.topic}/{'' if place.partition is None else f'{place.partition}/'}{place.name}"
    with click.open_file(source, "rb") as stream:
        hint = f"cat {source if source != '-' else ''} >> MOUNTPOINT/{path}".replace("  ", " ")
        with opened_for_writing(directory, through_mount=hint) as engine:
            lines_target = _target(engine, place, path)
            if source != "-" and stream.seekable():
                _each(stream, lines_target.check, source, kept=False)
                stream.seek(0)
            _each(stream, lines_target.append, "standard input" if source == "-" else source, kept=True)


def _target(engine: Engine, place: Place, name: str) -> LineTarget:
    topic = engine.topic(place.topic)
    if topic.internal:
        raise PolicyViolationError(f"{topic.name}: Kafka's own; nobody else writes there")
    reports = Reports(system_clock)
    encoder = Encoder(by_suffix(place.name.removeprefix("log")), system_clock, reports)
    if place.partition is None:
        return DoorTarget(name, topic, encoder, KafkaPartitioner())
    return PartitionTarget(name, engine.partition(topic.name, place.partition), encoder)


def _each(stream: IO[bytes], take: Callable[[bytes], None], source: str, *, kept: bool) -> None:
    """Hand the lines of `stream` on, block by block; what is wrong with one is told by its line number."""
    first_line = 1
    for block in blocks(stream):
        try:
            take(block)
        except FormError as error:
            number = first_line + error.line_number - 1
            raise LinesRefusedError(
                f"{source}: line {number}: {error.reason}{_fate(kept, first_line)}"
            ) from None
        except RecordTooLargeError as error:
            raise LinesRefusedError(f"{source}: {error}{_fate(kept, first_line)}") from None
        first_line += block.count(b"\n")


def _fate(kept: bool, first_line: int) -> str:
    if not kept:
        return "; nothing was appended"
    return (
        f"; the {first_line - 1} lines before its block were appended"
        if first_line > 1
        else "; nothing was appended"
    )


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Give whole lines, some MiB at a time; a last line without an end gets one."""
    waiting = NOTHING
    while data := stream.read(BLOCK_BYTES):
        framed = frame(waiting, data)
        waiting = framed.waiting
        if framed.lines:
            yield framed.lines
    if waiting.tail:
        yield waiting.tail + b"\n"
