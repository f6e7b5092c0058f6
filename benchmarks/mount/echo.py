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
from benchmarks.mount.one_processor import one_processor
from benchmarks.mount.places import Place, Showing, append_places
from benchmarks.mount.spending import Spent
from benchmarks.mount.system_calls import echo_lines

WRITTEN_BYTES = 10 * 2**20
"""More than all rounds write."""


def cases(conditions: Conditions) -> Cases:
    count = conditions.choose(full=600, short=200)
    text = lines.line(0).decode()

    def work(place: Place) -> Spent:
        return place.appended(count * lines.LINE_BYTES, lambda: echo_lines(place.log, text, count))

    shown = Showing(
        name="echo line >> log",
        unit=LINES_A_SECOND,
        processor_unit=LINES_A_SECOND_OF_PROCESSOR,
        figure=lambda seconds: count / seconds,
    )
    with one_processor(), append_places(conditions, WRITTEN_BYTES, both_loops=True) as places:
        yield from places.cases(work, shown, target=0.8, floor=0.35)


BENCHMARK = Benchmark(
    name="echo",
    question="How many lines a second does a loop of `echo >>` append?",
    cases=cases,
    logarithmic=True,
)
