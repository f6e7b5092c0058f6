"""One line from a shell: bash opens the log, writes the line, and closes it; then the next."""

from __future__ import annotations

from benchmarks import lines
from benchmarks.frame.question import LINES_A_SECOND, Benchmark, Case, Cases, Conditions, Goal
from benchmarks.mount.mounts import EMPTY
from benchmarks.mount.places import Place, append_places
from benchmarks.mount.system_calls import echo_lines

WRITTEN_BYTES = 10 * 2**20
"""More than all rounds write."""


def cases(conditions: Conditions) -> Cases:
    count = conditions.choose(full=600, short=200)
    text = lines.line(0).decode()

    def speed(place: Place) -> float:
        size = count * lines.LINE_BYTES
        return count / place.checked(size, lambda: echo_lines(place.log, text, count))

    with append_places(conditions, WRITTEN_BYTES) as places:
        yield Case(
            name="echo line >> log",
            unit=LINES_A_SECOND,
            sides=places.sides(speed),
            goals=(Goal(of=EMPTY, target=0.8, floor=0.3),),
        )


BENCHMARK = Benchmark(
    name="echo",
    question="How many lines a second does a loop of `echo >>` append?",
    cases=cases,
    logarithmic=True,
)
