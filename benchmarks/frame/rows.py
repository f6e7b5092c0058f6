"""A case as rows of words: one way of writing figures, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from benchmarks.frame.question import Better
from benchmarks.frame.results import CaseResult, GoalOutcome, RunResult, Verdict

HEADINGS = ("case", "side", "median", "min to max", "ratio", "against", "goal", "verdict")
"""The columns of a benchmark's table."""
GOAL_HEADINGS = ("question", "case", "side", "of", "reached", "against", "goal", "verdict")
"""The columns of the table of all goals."""
Row: TypeAlias = tuple[str, ...]


def goal_rows(report: RunResult) -> Iterator[Row]:
    """Every goal of a run, whether it is reached or not, by GOAL_HEADINGS."""
    for result in report.benchmarks:
        for case in result.cases:
            for outcome in case.outcomes:
                if outcome.verdict is not Verdict.NO_GOAL:
                    ratio, against, goal, verdict = _judged(outcome, case.unit.name)
                    place = (result.name, case.name, outcome.goal.side, case.unit.name)
                    yield (*place, ratio or number(outcome.ratio), against, goal, verdict)


def rows(case: CaseResult) -> Iterator[Row]:
    """A row a side, and one more for each further goal of it, by HEADINGS."""
    name = case.name
    for figures in case.figures:
        outcomes = [outcome for outcome in case.outcomes if outcome.goal.side == figures.side]
        spread = f"{number(figures.low)} to {number(figures.high)}"
        side = (figures.side, f"{number(figures.median)} {case.unit.name}", spread)
        judged = [_judged(outcome, case.unit.name) for outcome in outcomes]
        for words in judged or [("", "", "", "")]:
            yield (name, *side, *words)
            name, side = "", ("", "", "")


def _judged(outcome: GoalOutcome, unit: str) -> tuple[str, str, str, str]:
    goal = outcome.goal
    sign = "≥" if outcome.better is Better.HIGHER else "≤"
    wanted = "" if goal.target is None else f"{sign} {number(goal.target)}"
    if goal.of is None:
        return ("", "", f"{wanted} {unit}", _word(outcome))
    return (f"{number(outcome.ratio)}×", goal.of, wanted and f"{wanted}×", _word(outcome))


def _word(outcome: GoalOutcome) -> str:
    if outcome.verdict is Verdict.NO_GOAL:
        return ""
    factor = outcome.missing_factor
    missing = "" if factor is None else f"missing {number(factor)}×"
    if outcome.verdict is Verdict.BELOW_FLOOR:
        return f"below the floor of {number(outcome.goal.floor or 0)}×{missing and ', '}{missing}"
    return missing or "reached"


def number(value: float) -> str:
    """Return a number with three significant digits, thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    if abs(value) >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"
