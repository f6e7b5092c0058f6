"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchmarks.frame.results import BenchmarkResult, Verdict
from benchmarks.frame.rows import HEADINGS, rows

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


def _table(result: BenchmarkResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in HEADINGS:
        table.add_column(
            heading,
            no_wrap=heading in ("case", "median"),
            justify="right" if heading in ("median", "min to max", "ratio") else "left",
        )
    for case in result.cases:
        for row in rows(case):
            table.add_row(*row[:-1], Text(row.verdict, style=_style(row.verdict)))
    return table


def _style(verdict: str) -> str:
    if not verdict:
        return ""
    kinds = {"reached": Verdict.REACHED, "missing": Verdict.MISSED}
    return STYLES[kinds.get(verdict.split(" ", 1)[0], Verdict.BELOW_FLOOR).value]
