"""Small appends on one descriptor: a write(2) of one line of 100 bytes, which becomes a batch of one record."""

from __future__ import annotations

from benchmarks import lines
from benchmarks.frame.question import MICROSECONDS, Benchmark, Case, Cases, Conditions, Goal
from benchmarks.mount.mounts import EMPTY
from benchmarks.mount.places import Place, append_places
from benchmarks.mount.system_calls import append_lines

WRITTEN_BYTES = 50 * 2**20
"""More than all rounds write, batch headers and all."""


def cases(conditions: Conditions) -> Cases:
    count = conditions.choose(full=5_000, short=1_500)
    line = lines.line(0) + b"\n"

    def microseconds(place: Place) -> float:
        elapsed = place.checked(count * len(line), lambda: append_lines(place.log, line, count))
        return elapsed / count * 1e6

    with append_places(conditions, WRITTEN_BYTES) as places:
        yield Case(
            name="100 bytes on one descriptor",
            unit=MICROSECONDS,
            sides=places.sides(microseconds),
            # Of time taken, 0.8 of the speed is this much.
            goals=(Goal(of=EMPTY, target=1 / 0.8, floor=4),),
        )


BENCHMARK = Benchmark(
    name="append", question="How long does a write of one line take?", cases=cases, logarithmic=True
)
