"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchmarks.frame.results import BenchmarkResult, RunResult, Verdict
from benchmarks.frame.rows import GOAL_HEADINGS, HEADINGS, goal_rows, rows

STYLES = {
    Verdict.NO_GOAL.value: "",
    Verdict.REACHED.value: "green",
    Verdict.MISSED.value: "yellow",
    Verdict.BELOW_FLOOR.value: "bold red",
}


def show(result: BenchmarkResult, console: Console) -> None:
    """Print one benchmark's results."""
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
    """Print every goal of a run, and how long it took."""
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
