"""Results as tables: rows of text for each case, and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchmarks.frame.question import Better
from benchmarks.frame.results import BenchmarkResult, CaseResult, GoalOutcome, RunResult, Verdict

HEADINGS = ("case", "side", "median", "min to max", "ratio", "against", "goal", "verdict")
"""The columns of a benchmark's table."""
GOAL_HEADINGS = ("question", "case", "side", "of", "reached", "against", "goal", "verdict")
"""The columns of the table of all goals."""
Row: TypeAlias = tuple[str, ...]


def goal_rows(report: RunResult) -> Iterator[Row]:
    """Yield a row, with the columns of GOAL_HEADINGS, for every goal of a run, reached or not."""
    for result in report.benchmarks:
        for case in result.cases:
            for outcome in case.outcomes:
                if outcome.verdict is not Verdict.NO_GOAL:
                    ratio, against, goal, verdict = _judged(outcome, case.unit.name)
                    place = (result.name, case.name, outcome.goal.side, case.unit.name)
                    yield (*place, ratio or number(outcome.ratio), against, goal, verdict)


def rows(case: CaseResult) -> Iterator[Row]:
    """Yield a row, with the columns of HEADINGS, for each side, and a further row for each further goal of the side."""
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
    """Format a number with three significant digits, and with separators between thousands."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    if abs(value) >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


STYLES = {
    Verdict.NO_GOAL.value: "",
    Verdict.REACHED.value: "green",
    Verdict.MISSED.value: "yellow",
    Verdict.BELOW_FLOOR.value: "bold red",
}


def show(result: BenchmarkResult, console: Console) -> None:
    """Print the results of one benchmark."""
    console.print(
        Text.assemble((result.name, "bold"), "  ", result.question, (f"  {result.seconds:.0f} s", "dim"))
    )
    for part in _parts(result):
        console.print(Padding(part, (0, 0, 0, 2)))
    console.print()


def _parts(result: BenchmarkResult) -> Iterator[RenderableType]:
    if result.skipped is not None:
        yield Text(f"skipped: {result.skipped}", style="yellow")
    if result.cases:
        yield _table(result)
    if result.failed is not None:
        yield Text(result.failed, style="bold red")


def show_goals(report: RunResult, console: Console) -> None:
    """Print every goal of a run, and the time that the run took."""
    table = _judged_table(GOAL_HEADINGS, right=("reached",))
    for row in goal_rows(report):
        table.add_row(*row[:-1], Text(row[-1], style=_style(row[-1])))
    seconds = sum(result.seconds for result in report.benchmarks)
    console.print(Text.assemble(("goals", "bold"), f"  all of it took {seconds / 60:.1f} minutes"))
    if table.row_count:
        console.print(Padding(table, (0, 0, 0, 2)))


def _judged_table(headings: Sequence[str], *, right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(
            heading,
            no_wrap=heading in {"case", "median", "reached"},
            justify="right" if heading in right else "left",
        )
    return table


def _table(result: BenchmarkResult) -> Table:
    table = _judged_table(HEADINGS, right=("median", "min to max", "ratio"))
    for case in result.cases:
        for row in rows(case):
            table.add_row(*row[:-1], Text(row[-1], style=_style(row[-1])))
    return table


def _style(verdict: str) -> str:
    if not verdict:
        return ""
    kinds = {"reached": Verdict.REACHED, "missing": Verdict.MISSED}
    return STYLES[kinds.get(verdict.split(" ", 1)[0], Verdict.BELOW_FLOOR).value]
