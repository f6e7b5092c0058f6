"""Streaming a whole log: `cat log` of 100-byte lines, with every checksum checked on our side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import lines
from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import (
    MEGABYTES_A_SECOND,
    MEGABYTES_A_SECOND_OF_PROCESSOR,
    Benchmark,
    Cases,
    Conditions,
    SkippedError,
)
from benchmarks.mount.caches import check_can_drop, drop
from benchmarks.mount.mounts import empty_filesystem, topicfs
from benchmarks.mount.one_processor import one_processor
from benchmarks.mount.places import Place, Places, Showing
from benchmarks.mount.spending import Spent, spent
from benchmarks.mount.system_calls import KIB, MIB, check_text, read_through
from benchmarks.partitions import ONE_RECORD, SIXTEEN_KIB, Shape, data_directory, whole_batches

PIECES = {"128 KiB": 128 * KIB, "512 KiB": 512 * KIB, "1 MiB": MIB}
"""What programs ask for at a time: many by habit, `cat` where it is advised by st_blksize, and as much as one request may bring."""
TARGETS = {SIXTEEN_KIB: 0.6, ONE_RECORD: 0.25}
FLOORS = {SIXTEEN_KIB: 0.2, ONE_RECORD: 0.13}


class Logs(NamedTuple):
    """The same text in three places."""

    places: Places
    size: int
    on_disk: list[Path]
    """Every file behind ours and the native one."""


def cases(conditions: Conditions) -> Cases:
    sizes = {
        SIXTEEN_KIB: conditions.choose(full=160, short=16) * len(lines.BLOCK),
        ONE_RECORD: conditions.choose(full=16, short=2) * len(lines.BLOCK),
    }
    for shape, size in sizes.items():
        directory = conditions.directory / str(shape.lines_in_batch)
        with one_processor(), _logs(directory, shape, size) as logs:
            check_text(logs.places.ours.log, logs.size)
            for name, piece in PIECES.items():
                shown = _showing(f"{shape.name}, {name} reads, warm", logs)
                warm = partial(_read, piece=piece)
                yield from logs.places.cases(warm, shown, target=TARGETS[shape], floor=FLOORS[shape])
            try:
                check_can_drop(logs.on_disk)
            except SkippedError:
                continue  # Nothing on this disk can be cold.
            # No goal: the empty filesystem has no disk to read from.
            shown = _showing(f"{shape.name}, 128 KiB reads, cold", logs)
            yield from logs.places.cases(partial(_read, piece=128 * KIB, dropped=logs.on_disk), shown)


def _showing(name: str, logs: Logs) -> Showing:
    return Showing(
        name=name,
        unit=MEGABYTES_A_SECOND,
        processor_unit=MEGABYTES_A_SECOND_OF_PROCESSOR,
        figure=lambda seconds: logs.size / 1e6 / seconds,
    )


def _read(place: Place, *, piece: int, dropped: list[Path] | None = None) -> Spent:
    drop(dropped or [])
    return spent(lambda: read_through(place.log, piece, place.size()), place.daemon)


@contextmanager
def _logs(directory: Path, shape: Shape, text_bytes: int) -> Iterator[Logs]:
    size = whole_batches(text_bytes, shape)
    data = data_directory(directory / "data", {"bench": (size, shape)})
    native = directory / "native"
    native.write_bytes(lines.text(size))
    with ExitStack() as stack:
        ours = stack.enter_context(topicfs(directory, data))
        empty = stack.enter_context(empty_filesystem(directory, like=ours, log_bytes=size))
        places = Places(
            ours=Place(ours.side, ours.partition() / "log", lambda: size, ours.pid),
            empty=Place(empty.side, empty.partition() / "log", lambda: size, empty.pid),
            native=Place(filesystem_type(directory), native, lambda: size),
        )
        yield Logs(places, size, [native, *(data / "bench-0").iterdir()])


BENCHMARK = Benchmark(name="stream", question="How fast is `cat log`?", cases=cases, logarithmic=True)
