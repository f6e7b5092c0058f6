"""Measuring: every side once a round, in an order that turns, so that a drifting machine treats all alike."""

from __future__ import annotations

import gc
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.frame.question import Benchmark, Case, Conditions, SkippedError
from benchmarks.frame.results import BenchmarkResult, CaseResult, Figures

Progress = Callable[[str], None]
"""Is told what is being measured, for a person who waits."""


def measure_case(case: Case, rounds: int) -> CaseResult:
    """Measure all sides of a case. Raises what they raise."""
    if case.warm_up:
        for side in case.sides:
            side.measure()
    figures: dict[str, list[float]] = {side.name: [] for side in case.sides}
    for number in range(min(rounds, case.most_rounds or rounds)):
        for side in case.sides if number % 2 == 0 else reversed(case.sides):
            gc.collect()  # What the other side left behind is not this one's to clear away.
            figures[side.name].append(side.measure())
    return CaseResult(
        case.name,
        case.unit,
        tuple(Figures(name, tuple(rounds)) for name, rounds in figures.items()),
        case.goals,
    )


def run_benchmark(
    benchmark: Benchmark, *, rounds: int, short: bool, directory: Path | None = None, progress: Progress
) -> BenchmarkResult:
    """Run one benchmark in a temporary directory under `directory`; what goes wrong is part of the result."""
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
                    cases.append(measure_case(case, rounds))
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
