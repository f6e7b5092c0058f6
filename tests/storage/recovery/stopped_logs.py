"""Logs that were closed in order, and changes of their files that a crash or a failing disk could make."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.logs import DIRECTORY, LogOnDisk, filled
from tests.doubles.records import batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.model import Offset

SEGMENT_SUFFIXES = (".log", ".index", ".timeindex")


def log_file(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def stopped(count: int = 12, **settings) -> LogOnDisk:
    """Return a log of `count` batches like `filled`, closed in order."""
    on_disk = filled(count, **settings)
    on_disk.log.close()
    return on_disk


def of_epochs(epochs: dict[int, int]) -> LogOnDisk:
    """Return a closed log. `epochs` maps the offset of each of its records to a leader epoch; each record is a batch."""
    on_disk = LogOnDisk()
    for offset, epoch in epochs.items():
        on_disk.log.appender.append_as_follower(batch(b"a", offset=offset, epoch=epoch))
    on_disk.log.close()
    return on_disk


def cut(on_disk: LogOnDisk, base_offset: int, size: int) -> None:
    """Keep the first `size` bytes of a segment's log file; a negative size counts from the end."""
    name = log_file(base_offset)
    on_disk.write(name, on_disk.content(name)[:size])


def overwrite(on_disk: LogOnDisk, base_offset: int, position: int, data: bytes) -> None:
    """Write `data` into a segment's log file; a negative position counts from the end."""
    name = log_file(base_offset)
    content = bytearray(on_disk.content(name))
    position %= len(content)
    content[position : position + len(data)] = data
    on_disk.write(name, bytes(content))


def replacement(*offsets: int, base_offset: int = 0) -> dict[str, bytes]:
    """Return the files of a segment, by name, as a compaction writes it: with a batch at each of `offsets`."""
    on_disk = LogOnDisk()
    if base_offset:
        on_disk.log.replacer.truncate_fully_and_start_at(Offset(base_offset))
    for offset in offsets:
        on_disk.log.appender.append_as_follower(batch(b"new", offset=offset))
    on_disk.log.close()
    return {name: on_disk.content(name) for name in on_disk.names() if name.endswith(SEGMENT_SUFFIXES)}


def put(
    on_disk: LogOnDisk, files: dict[str, bytes], state: str, *, only: tuple[str, ...] = SEGMENT_SUFFIXES
) -> None:
    """Write a segment's files; `state` is added to each name."""
    for name, data in files.items():
        if name.endswith(only):
            on_disk.write(name + state, data)


def sync_all(disk: SimulatedDisk) -> None:
    """Sync all files and the log's directory."""
    for path in disk.tree():
        disk.open(Path(path)).sync()
    disk.sync_directory(DIRECTORY)
