"""Writes a run as JSON and reads it again: the figures of all rounds, for tables, plots and the page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from benchmarks.frame.question import Better, Goal, Unit
from benchmarks.frame.results import BenchmarkResult, CaseResult, Figures, RunResult


def to_json(report: RunResult) -> str:
    """Return the run as JSON, which also has medians, ratios and verdicts for other programs."""
    plain = {
        "machine": report.machine,
        "short": report.short,
        "benchmarks": [_plain(result) for result in report.benchmarks],
    }
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> RunResult:
    """Parse the JSON that `to_json` returns. Raises ValueError, KeyError or TypeError for other text."""
    plain = json.loads(text)
    return RunResult(
        plain["machine"],
        plain["short"],
        tuple(
            BenchmarkResult(**result | {"cases": tuple(map(_case, result["cases"]))})
            for result in plain["benchmarks"]
        ),
    )


def merged(reports: Iterable[RunResult]) -> RunResult:
    """Merge runs: keep each benchmark's last result, in the order of the first results."""
    known = list(reports)
    latest = {result.name: result for report in known for result in report.benchmarks}
    return RunResult(known[-1].machine, known[-1].short, tuple(latest.values()))


def _plain(result: BenchmarkResult) -> dict[str, Any]:
    plain = asdict(result)
    plain["cases"] = [_plain_case(case) for case in result.cases]
    return plain


def _plain_case(case: CaseResult) -> dict[str, Any]:
    return {
        "name": case.name,
        "unit": case.unit.name,
        "better": case.unit.better.value,
        "sides": [
            {"side": figures.side, "median": figures.median, "rounds": figures.rounds}
            for figures in case.figures
        ],
        "goals": [
            {
                **asdict(outcome.goal),
                "reached": outcome.ratio,
                "verdict": outcome.verdict.value,
                "missing_factor": outcome.missing_factor,
            }
            for outcome in case.outcomes
        ],
    }


def _case(plain: dict[str, Any]) -> CaseResult:
    return CaseResult(
        plain["name"],
        Unit(plain["unit"], Better(plain["better"])),
        tuple(Figures(side["side"], tuple(side["rounds"])) for side in plain["sides"]),
        tuple(
            Goal(side=goal["side"], of=goal["of"], target=goal["target"], floor=goal["floor"])
            for goal in plain["goals"]
        ),
    )
