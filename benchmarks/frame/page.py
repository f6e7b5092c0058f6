"""Writes figures into a page of prose: a benchmark's text goes between two marks with the benchmark's name.

    <!-- figures of NAME -->
    … table and picture, written here …
    <!-- end of NAME -->

NAME is the name of a benchmark or of a table of `summary`. It may also be `goals` for the goals of all benchmarks,
`machine` for the machine of the run, or `machine in brief` for one line about it. Text outside the marks never
changes.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.frame.results import BenchmarkResult, RunResult
from benchmarks.frame.summary import TABLES, machine_in_brief, table
from benchmarks.frame.table import GOAL_HEADINGS, HEADINGS, goal_rows, rows

MACHINE, IN_BRIEF, GOALS = "machine", "machine in brief", "goals"


def filled(page: str, report: RunResult, pictures: Path) -> str:
    """Return the page with its marks filled; the text of a benchmark that did not run does not change.

    `pictures` is the folder of pictures, relative to the page.
    """
    page = _with(page, MACHINE, _machine(report))
    page = _with(page, IN_BRIEF, machine_in_brief(report))
    for name, lines in TABLES.items():
        summary = table(report, lines)
        if summary is not None:
            page = _with(page, name, summary)
    page = _with(page, GOALS, _goals(report))
    for result in report.benchmarks:
        page = _with(page, result.name, _figures(result, pictures))
    return page


def _with(page: str, name: str, text: str) -> str:
    before, begin, rest = page.partition(f"<!-- figures of {name} -->\n")
    _old, end, after = rest.partition(f"<!-- end of {name} -->")
    return f"{before}{begin}\n{text}\n\n{end}{after}" if begin and end else page


def _machine(report: RunResult) -> str:
    lines = ["| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in report.machine.items()]
    return "\n".join(lines)


def _goals(report: RunResult) -> str:
    lines = [f"| {' | '.join(GOAL_HEADINGS)} |", "|---|---|---|---|--:|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in goal_rows(report)]
    return "\n".join(lines)


def _figures(result: BenchmarkResult, pictures: Path) -> str:
    if result.skipped is not None:
        return f"Not measured in this run: {result.skipped}"
    lines = [f"![{result.question}]({pictures / result.name}.svg)", ""]
    lines += [f"| {' | '.join(HEADINGS)} |", "|---|---|--:|--:|--:|---|---|---|"]
    for case in result.cases:
        lines += [f"| {' | '.join(row)} |" for row in rows(case)]
    return "\n".join(lines)
