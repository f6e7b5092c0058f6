"""Small appends on one descriptor: a write(2) of one line of 100 bytes, which becomes a batch of one record."""

from __future__ import annotations

from benchmarks import lines
from benchmarks.frame.question import MICROSECONDS, MICROSECONDS_OF_PROCESSOR, Benchmark, Cases, Conditions
from benchmarks.mount.setup.cpu_time import Timing, one_processor
from benchmarks.mount.setup.system_calls import append_lines
from benchmarks.mount.setup.targets import Display, MeasuredLog, logs_for_appends

WRITTEN_BYTES = 50 * 2**20
"""More than all rounds write, batch headers and all."""
TARGET = 1.3


def cases(conditions: Conditions) -> Cases:
    count = conditions.choose(full=5_000, short=1_500)
    line = lines.line(0) + b"\n"

    def work(log: MeasuredLog) -> Timing:
        return log.appended(count * len(line), lambda: append_lines(log.path, line, count))

    shown = Display(
        name="100 bytes on one descriptor",
        unit=MICROSECONDS,
        processor_unit=MICROSECONDS_OF_PROCESSOR,
        figure=lambda seconds: seconds / count * 1e6,
    )
    with one_processor(), logs_for_appends(conditions, WRITTEN_BYTES, requests_count=True) as logs:
        yield from logs.cases(work, shown, target=TARGET, floor=4.0)


BENCHMARK = Benchmark(
    name="append", question="How long does a write of one line take?", cases=cases, logarithmic=True
)
