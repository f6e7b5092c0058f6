"""One line from a shell: bash opens the log, writes the line, and closes it; then the next."""

from __future__ import annotations

from benchmarks import lines
from benchmarks.frame.question import (
    LINES_A_SECOND,
    LINES_A_SECOND_OF_PROCESSOR,
    Benchmark,
    Cases,
    Conditions,
)
from benchmarks.mount.setup.cpu_time import Timing, one_processor
from benchmarks.mount.setup.system_calls import echo_lines
from benchmarks.mount.setup.targets import Display, MeasuredLog, logs_for_appends

WRITTEN_BYTES = 10 * 2**20
"""More than all rounds write."""


def cases(conditions: Conditions) -> Cases:
    count = conditions.choose(full=600, short=200)
    text = lines.line(0).decode()

    def work(log: MeasuredLog) -> Timing:
        return log.appended(count * lines.LINE_BYTES, lambda: echo_lines(log.path, text, count))

    shown = Display(
        name="echo line >> log",
        unit=LINES_A_SECOND,
        processor_unit=LINES_A_SECOND_OF_PROCESSOR,
        figure=lambda seconds: count / seconds,
    )
    with one_processor(), logs_for_appends(conditions, WRITTEN_BYTES, requests_count=True) as logs:
        yield from logs.cases(work, shown, target=0.85, floor=0.35)


BENCHMARK = Benchmark(
    name="echo",
    question="How many lines a second does a loop of `echo >>` append?",
    cases=cases,
    logarithmic=True,
)
