"""Measurement: every side runs once per round, in alternating order.

So a machine whose speed drifts affects all sides equally.
"""

from __future__ import annotations

import gc
import math
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from benchmarks.frame.question import Benchmark, Case, Conditions, Goal, Side, SkippedError, Unit
from benchmarks.frame.results import BenchmarkResult, CaseResult, Figures

T = TypeVar("T")

Progress = Callable[[str], None]
"""Called with the name of the case that is being measured, to show it to the user."""


FEWEST_ROUNDS = 3
"""Smallest number of rounds, so that the median is never an extreme."""


class RoundsEndedError(Exception):
    """The side reuses the rounds of another case, and has already used all of them."""


def measure_case(case: Case, rounds: int, seconds: float = math.inf) -> CaseResult:
    """Measure all sides of a case in `rounds` rounds.

    After `seconds`, begin no further round, except to complete at least three rounds. Raises the exceptions of the
    sides.
    """
    if case.warm_up:
        for side in case.sides:
            side.measure()
    most = min(rounds, case.max_rounds or rounds)
    figures: dict[str, list[float]] = {side.name: [] for side in case.sides}
    started = time.monotonic()
    for number in range(most):
        if number >= FEWEST_ROUNDS and time.monotonic() - started > seconds:
            break
        try:
            for side in case.sides if number % 2 == 0 else reversed(case.sides):
                gc.collect()  # Without this call, a side might collect the garbage of another side.
                figures[side.name].append(side.measure())
        except RoundsEndedError:
            break
    return CaseResult(
        case.name,
        case.unit,
        tuple(Figures(name, tuple(rounds)) for name, rounds in figures.items()),
        case.goals,
    )


def run_benchmark(
    benchmark: Benchmark,
    *,
    rounds: int,
    seconds: float = math.inf,
    short: bool,
    directory: Path | None = None,
    progress: Progress,
) -> BenchmarkResult:
    """Run one benchmark in a temporary directory below `directory`. If an error ends it, the result has the error."""
    cases: list[CaseResult] = []
    skipped = failed = None
    started = time.monotonic()
    with tempfile.TemporaryDirectory(
        prefix="topicfs-bench-", dir=directory, ignore_cleanup_errors=True
    ) as temporary:
        try:
            with closing(benchmark.cases(Conditions(short=short, directory=Path(temporary)))) as prepared:
                for case in prepared:
                    progress(f"{benchmark.name}: {case.name}")
                    cases.append(measure_case(case, rounds, seconds))
        except SkippedError as error:
            skipped = str(error)
        except Exception as error:  # noqa: BLE001 - one that fails must not take the others' figures along
            failed = "".join(traceback.format_exception(error))
    return BenchmarkResult(
        name=benchmark.name,
        question=benchmark.question,
        logarithmic=benchmark.logarithmic,
        cases=tuple(cases),
        seconds=time.monotonic() - started,
        skipped=skipped,
        failed=failed,
    )


class Figure(NamedTuple, Generic[T]):
    """A case of `shared_cases`: its name and unit, and how to compute its figure from the result of a round."""

    name: str
    unit: Unit
    of: Callable[[T], float]
    goals: tuple[Goal, ...]


def shared_cases(
    measures: Mapping[str, Callable[[], T]],
    *figures: Figure[T],
    max_rounds: int | None = None,
    warm_up: bool = True,
) -> Iterator[Case]:
    """Yield a case for each figure. All these cases share the same rounds, which the first case runs.

    `measures` has, by side, the function that runs a round. A later case only computes its figures from the results,
    and ends when it has used all of them.
    """
    kept: dict[str, list[T]] = {side: [] for side in measures}

    def measured(side: str, of: Callable[[T], float]) -> float:
        kept[side].append(measures[side]())
        return of(kept[side][-1])

    def taken(rounds: Iterator[T], of: Callable[[T], float]) -> float:
        for found in rounds:
            return of(found)
        raise RoundsEndedError

    for number, (name, unit, of, goals) in enumerate(figures):
        sides = tuple(
            Side(side, partial(taken, iter(kept[side]), of) if number else partial(measured, side, of))
            for side in measures
        )
        yield Case(name=name, unit=unit, sides=sides, goals=goals, max_rounds=max_rounds, warm_up=warm_up)


def percentile(share: float, latencies: Sequence[float]) -> float:
    """Return a percentile in milliseconds of `latencies` in seconds; a `share` of 0.99 means the 99th percentile."""
    return sorted(latencies)[min(int(len(latencies) * share), len(latencies) - 1)] * 1e3
