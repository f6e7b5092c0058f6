"""Dumps the named files one after another, and prints Kafka's report at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from topicfs.inspection.dump.indexes import (
    dump_offset_index,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from topicfs.inspection.dump.log import DumpOptions, dump_log
from topicfs.inspection.dump.report import DumpReport
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError


class DumpLine(NamedTuple):
    """A line without its line end; `error` is True for standard error."""

    text: str
    error: bool = False


def dump(names: Sequence[str], options: DumpOptions, files: FileSystem) -> Iterator[DumpLine]:
    """Dump files in the given order. Raises OSError if a file cannot be read, CorruptionError if a file ends early."""
    report = DumpReport()
    for name in names:
        yield DumpLine(f"Dumping {PurePath(name)}")
        yield from _dump_file(name, options, files, report)
    for line in report.lines():
        yield DumpLine(line, error=True)


def _dump_file(name: str, options: DumpOptions, files: FileSystem, report: DumpReport) -> Iterator[DumpLine]:
    path = Path(name).absolute()
    shown = str(PurePath(name))
    match path.suffix:
        case ".log":
            lines = dump_log(path, options, files, report)
        case ".index":
            lines = dump_offset_index(path, shown, options, files, report)
        case ".timeindex":
            lines = dump_time_index(path, shown, options, files, report)
        case ".snapshot":
            yield from _dump_snapshot(path, files)
            return
        case ".txnindex":
            lines = dump_transaction_index(path, files)
        case _:
            files.size(path)  # Report a missing file as an error, even if its name is not supported.
            yield DumpLine(f"Ignoring unknown file {shown}", error=True)
            return
    for line in lines:
        yield DumpLine(line)


def _dump_snapshot(path: Path, files: FileSystem) -> Iterator[DumpLine]:
    """Print a snapshot. Report a damaged snapshot and continue, because a broker does not need it."""
    try:
        lines = list(dump_snapshot(path, files))
    except CorruptionError as error:
        yield DumpLine(str(error), error=True)
        return
    for line in lines:
        yield DumpLine(line)
