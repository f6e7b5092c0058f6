"""Streaming a whole log: `cat log` of 100-byte lines, with every checksum checked on our side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import lines
from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import (
    MEGABYTES_A_SECOND,
    OURS,
    Benchmark,
    Case,
    Cases,
    Conditions,
    Goal,
    Side,
    SkippedError,
)
from benchmarks.mount.caches import check_can_drop, drop
from benchmarks.mount.mounts import EMPTY, empty_filesystem, topicfs
from benchmarks.mount.system_calls import KIB, MIB, check_text, read_through
from benchmarks.partitions import ONE_RECORD, SIXTEEN_KIB, Shape, data_directory, whole_batches

PIECES = {"128 KiB": 128 * KIB, "1 MiB": MIB}
TARGETS = {SIXTEEN_KIB: 0.6, ONE_RECORD: 0.25}
FLOORS = {SIXTEEN_KIB: 0.15, ONE_RECORD: 0.06}


class Logs(NamedTuple):
    """The same text in three places."""

    ours: Path
    empty: Path
    native: Path
    native_name: str
    size: int
    on_disk: list[Path]
    """Every file behind ours and the native one."""


def cases(conditions: Conditions) -> Cases:
    sizes = {
        SIXTEEN_KIB: conditions.choose(full=160, short=16) * len(lines.BLOCK),
        ONE_RECORD: conditions.choose(full=16, short=2) * len(lines.BLOCK),
    }
    for shape, size in sizes.items():
        with _logs(conditions.directory / str(shape.lines_in_batch), shape, size) as logs:
            check_text(logs.ours, logs.size)
            for name, piece in PIECES.items():
                yield _case(f"{shape.name}, {name} reads, warm", shape, logs, piece, lambda: None)
            try:
                check_can_drop(logs.on_disk)
            except SkippedError:
                continue  # Nothing on this disk can be cold.
            yield _case(
                f"{shape.name}, 128 KiB reads, cold", shape, logs, 128 * KIB, lambda: drop(logs.on_disk)
            )


@contextmanager
def _logs(directory: Path, shape: Shape, text_bytes: int) -> Iterator[Logs]:
    size = whole_batches(text_bytes, shape)
    data = data_directory(directory / "data", {"bench": (size, shape)})
    native = directory / "native"
    native.write_bytes(lines.text(size))
    with ExitStack() as stack:
        ours = stack.enter_context(topicfs(directory, data))
        empty = stack.enter_context(empty_filesystem(directory, like=ours, log_bytes=size))
        yield Logs(
            ours.partition() / "log",
            empty.partition() / "log",
            native,
            filesystem_type(directory),
            size,
            [native, *(data / "bench-0").iterdir()],
        )


def _case(name: str, shape: Shape, logs: Logs, piece: int, before: Callable[[], None]) -> Case:
    def speed(path: Path) -> float:
        before()
        return logs.size / 1e6 / read_through(path, piece, logs.size)

    return Case(
        name=name,
        unit=MEGABYTES_A_SECOND,
        sides=(
            Side(OURS, lambda: speed(logs.ours)),
            Side(EMPTY, lambda: speed(logs.empty)),
            Side(logs.native_name, lambda: speed(logs.native)),
        ),
        goals=(Goal(of=EMPTY, target=TARGETS[shape], floor=FLOORS[shape]),),
    )


BENCHMARK = Benchmark(name="stream", question="How fast is `cat log`?", cases=cases, logarithmic=True)
