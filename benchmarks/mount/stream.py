"""Reads of a whole log: `cat log` with lines of 100 bytes. topicfs verifies every checksum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import lines
from benchmarks.frame import units
from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import Benchmark, Cases, Conditions, SkippedError
from benchmarks.mount.setup.cpu_time import Timing, one_processor, timed
from benchmarks.mount.setup.mounts import empty_filesystem, empty_filesystem_in_c, topicfs
from benchmarks.mount.setup.system_calls import KIB, MIB, check_can_drop, check_text, drop, read_through
from benchmarks.mount.setup.targets import Display, MeasuredLog, MeasuredLogs
from benchmarks.partitions import ONE_RECORD, SIXTEEN_KIB, Shape, data_directory, whole_batches

PIECES = {"128 KiB": 128 * KIB, "512 KiB": 512 * KIB, "1 MiB": MIB}
"""Bytes per read(2): first a common size, then st_blksize, which is the size that `cat` uses, then the largest
request.
"""
TARGETS = {SIXTEEN_KIB: 0.6, ONE_RECORD: 0.25}
FLOORS = {SIXTEEN_KIB: 0.25, ONE_RECORD: 0.25}


class TextLogs(NamedTuple):
    """Three logs with the same text."""

    logs: MeasuredLogs
    size: int
    on_disk: list[Path]
    """All files that store the logs of topicfs and of the native side."""


def cases(conditions: Conditions) -> Cases:
    sizes = {
        SIXTEEN_KIB: conditions.choose(full=160, short=16) * len(lines.BLOCK),
        ONE_RECORD: conditions.choose(full=16, short=2) * len(lines.BLOCK),
    }
    for shape, size in sizes.items():
        directory = conditions.directory / str(shape.lines_in_batch)
        with one_processor(), _text(directory, shape, size) as text:
            check_text(text.logs.ours.path, text.size)
            for name, piece in PIECES.items():
                shown = _display(f"{shape.name}, {name} reads, warm", text)
                warm = partial(_read, piece=piece)
                yield from text.logs.cases(warm, shown, target=TARGETS[shape], floor=FLOORS[shape])
            try:
                check_can_drop(text.on_disk)
            except SkippedError:
                continue  # Files on this disk cannot leave the page cache.
            # This case has no goal, because the empty filesystem reads from no disk.
            shown = _display(f"{shape.name}, 128 KiB reads, cold", text)
            yield from text.logs.cases(partial(_read, piece=128 * KIB, dropped=text.on_disk), shown)


def _display(name: str, text: TextLogs) -> Display:
    return Display(
        name=name,
        unit=units.MEGABYTES_A_SECOND,
        processor_unit=units.MEGABYTES_A_SECOND_OF_PROCESSOR,
        figure=lambda seconds: text.size / 1e6 / seconds,
    )


def _read(log: MeasuredLog, *, piece: int, dropped: list[Path] | None = None) -> Timing:
    drop(dropped or [])
    return timed(lambda: read_through(log.path, piece, log.size()), log.daemon)


@contextmanager
def _text(directory: Path, shape: Shape, text_bytes: int) -> Iterator[TextLogs]:
    size = whole_batches(text_bytes, shape)
    data = data_directory(directory / "data", {"bench": (size, shape)})
    native = directory / "native"
    native.write_bytes(lines.text(size))
    with ExitStack() as stack:
        ours = stack.enter_context(topicfs(directory, data))
        empty = stack.enter_context(empty_filesystem(directory, log_bytes=size))
        (segment,) = (data / "bench-0").glob("*.log")
        reading = stack.enter_context(empty_filesystem(directory, log_bytes=size, segment=segment))
        in_c = stack.enter_context(empty_filesystem_in_c(directory, log_bytes=size))
        others = tuple(
            MeasuredLog(other.side, other.partition() / "log", lambda: size, other.pid)
            for other in (reading, in_c)
        )
        logs = MeasuredLogs(
            ours=MeasuredLog(ours.side, ours.partition() / "log", lambda: size, ours.pid),
            empty=MeasuredLog(empty.side, empty.partition() / "log", lambda: size, empty.pid),
            others=others,
            least=reading.side,
            native=MeasuredLog(filesystem_type(directory), native, lambda: size),
        )
        yield TextLogs(logs, size, [native, *(data / "bench-0").iterdir()])


BENCHMARK = Benchmark(name="stream", question="How fast is `cat log`?", cases=cases, logarithmic=True)
