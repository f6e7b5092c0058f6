"""Appends: lines from a shell, lines on one descriptor, and large writes of many lines."""

from __future__ import annotations

from functools import partial

from benchmarks import lines
from benchmarks.frame import units
from benchmarks.frame.question import Benchmark, Cases, Conditions
from benchmarks.mount.setup.cpu_time import Timing, one_processor
from benchmarks.mount.setup.system_calls import (
    KIB,
    MIB,
    append_lines,
    append_pieces,
    check_text,
    echo_lines,
)
from benchmarks.mount.setup.targets import Display, MeasuredLog, logs_for_appends

PIECES = {"16 KiB": 16 * KIB, "128 KiB": 128 * KIB, "1 MiB": MIB}
MAX_ROUNDS = 11


def echo_cases(conditions: Conditions) -> Cases:
    """A loop in bash opens the log, writes a line, and closes the log, again for each line."""
    count = conditions.choose(full=600, short=200)
    text = lines.line(0).decode()

    def work(log: MeasuredLog) -> Timing:
        return log.appended(count * lines.LINE_BYTES, lambda: echo_lines(log.path, text, count))

    shown = Display(
        name="echo line >> log",
        unit=units.LINES_A_SECOND,
        processor_unit=units.LINES_A_SECOND_OF_PROCESSOR,
        figure=lambda seconds: count / seconds,
    )
    written_bytes = 10 * MIB  # All rounds together write less than this.
    with one_processor(), logs_for_appends(conditions, written_bytes, requests_count=True) as logs:
        yield from logs.cases(work, shown, target=0.85, floor=0.35)


def line_cases(conditions: Conditions) -> Cases:
    """Each write(2) has one line of 100 bytes, which becomes a batch of one record."""
    count = conditions.choose(full=5_000, short=1_500)
    line = lines.line(0) + b"\n"

    def work(log: MeasuredLog) -> Timing:
        return log.appended(count * len(line), lambda: append_lines(log.path, line, count))

    shown = Display(
        name="100 bytes on one descriptor",
        unit=units.MICROSECONDS,
        processor_unit=units.MICROSECONDS_OF_PROCESSOR,
        figure=lambda seconds: seconds / count * 1e6,
    )
    written_bytes = 50 * MIB  # All rounds together write less than this, even with batch headers.
    with one_processor(), logs_for_appends(conditions, written_bytes, requests_count=True) as logs:
        yield from logs.cases(work, shown, target=1.3, floor=4.0)


def bulk_cases(conditions: Conditions) -> Cases:
    """A text of 100-byte lines is written in large pieces, each of which becomes one batch."""
    size = conditions.choose(full=24, short=12) * len(lines.BLOCK)
    text = memoryview(lines.text(size))

    def work(log: MeasuredLog, piece: int) -> Timing:
        return log.appended(size, lambda: append_pieces(log.path, text, piece))

    written_bytes = 2 * size * MAX_ROUNDS * len(PIECES)
    with one_processor(), logs_for_appends(conditions, written_bytes) as logs:
        for name, piece in PIECES.items():
            shown = Display(
                name=f"{name} writes",
                unit=units.MEGABYTES_A_SECOND,
                processor_unit=units.MEGABYTES_A_SECOND_OF_PROCESSOR,
                figure=lambda seconds: size / 1e6 / seconds,
            )
            yield from logs.cases(partial(work, piece=piece), shown, target_of_least=0.8, floor=0.25)
        check_text(logs.ours.path, logs.ours.size())


ECHO = Benchmark(
    name="echo",
    question="How many lines a second does a loop of `echo >>` append?",
    cases=echo_cases,
    logarithmic=True,
)
APPEND = Benchmark(
    name="append", question="How long does a write of one line take?", cases=line_cases, logarithmic=True
)
BULK = Benchmark(
    name="bulk", question="How fast are large writes of lines?", cases=bulk_cases, logarithmic=True
)
