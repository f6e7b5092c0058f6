"""A picture a benchmark: SVG, the same bytes for the same figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.frame.question import OURS, Better, Drawing, Unit
from benchmarks.frame.results import BenchmarkResult, CaseResult, Figures
from benchmarks.frame.rows import number

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "topicfs",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
OUR_COLOUR = "#0b6e99"
OTHER_COLOURS = ("#9aa5ab", "#d9a441", "#7fb685", "#b07aa1", "#c97b63", "#5f6b73")
BAR_INCHES = 0.21
WIDTH_INCHES = 8.0


def draw(result: BenchmarkResult, directory: Path) -> Path | None:
    """Write `NAME.svg` into `directory`; None where there is nothing to draw."""
    if not result.cases:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.name}.svg"
    with mpl.rc_context(STYLE):
        figure = _bars(result) if result.drawing is Drawing.BARS else _lines(result)
        # No date: a picture changes when its figures do.
        figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    return path


def _by_unit(result: BenchmarkResult) -> Iterator[tuple[Unit, Sequence[CaseResult]]]:
    for unit in dict.fromkeys(case.unit for case in result.cases):
        yield unit, [case for case in result.cases if case.unit == unit]


def _colours(cases: Sequence[CaseResult]) -> dict[str, str]:
    others = itertools.cycle(OTHER_COLOURS)
    sides = dict.fromkeys(figures.side for case in cases for figures in case.figures)
    return {side: OUR_COLOUR if side == OURS else next(others) for side in sides}


def _axes(figure: Figure, heights: Sequence[float]) -> Sequence[Axes]:
    grid = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    return [row[0] for row in grid]


def _bars(result: BenchmarkResult) -> Figure:
    """Draw a horizontal group a case, a bar a side: the median, and a line from the lowest to the highest round."""
    parts = list(_by_unit(result))
    heights = [BAR_INCHES * sum(len(case.figures) + 1 for case in cases) + 0.6 for _unit, cases in parts]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
    figure.suptitle(result.question)
    colours = _colours(result.cases)
    for axes, (unit, cases) in zip(_axes(figure, heights), parts, strict=True):
        _bar_groups(axes, cases, colours)
        _scale(axes, unit, logarithmic=result.logarithmic)
        _legend(axes, cases, colours)
    return figure


def _bar_groups(axes: Axes, cases: Sequence[CaseResult], colours: dict[str, str]) -> None:
    places: list[float] = []
    place = 0.0
    for case in cases:
        for index, figures in enumerate(case.figures):
            axes.barh(place + index, figures.median, height=0.85, color=colours[figures.side])
            axes.hlines(place + index, figures.low, figures.high, color="#333333", linewidth=1)
            axes.annotate(
                f" {number(figures.median)}",
                (figures.high, place + index),
                va="center",
                fontsize=8,
                color="#333333",
            )
        places.append(place + (len(case.figures) - 1) / 2)
        place += len(case.figures) + 1
    axes.set_yticks(places, [case.name for case in cases])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.12)


def _scale(axes: Axes, unit: Unit, *, logarithmic: bool) -> None:
    if logarithmic:
        axes.set_xscale("log")
    word = "more is better" if unit.better is Better.HIGHER else "less is better"
    axes.set_xlabel(f"{unit.name}, {word}")


def _legend(axes: Axes, cases: Sequence[CaseResult], colours: dict[str, str]) -> None:
    sides = dict.fromkeys(figures.side for case in cases for figures in case.figures)
    handles = [axes.barh(0, 0, color=colours[side], label=side) for side in sides]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)


def _lines(result: BenchmarkResult) -> Figure:
    """Draw a line a side over the cases, with the span of its rounds as a band."""
    parts = list(_by_unit(result))
    figure = Figure(figsize=(WIDTH_INCHES, 3.2 * len(parts)), layout="constrained")
    figure.suptitle(result.question)
    colours = _colours(result.cases)
    for axes, (unit, cases) in zip(_axes(figure, [1] * len(parts)), parts, strict=True):
        places = range(len(cases))
        for side, colour in colours.items():
            points = [(place, _of(case, side)) for place, case in zip(places, cases, strict=True)]
            known = [(place, figures) for place, figures in points if figures is not None]
            at = [place for place, _figures in known]
            axes.plot(at, [figures.median for _, figures in known], color=colour, marker="o", label=side)
            axes.fill_between(
                at,
                [figures.low for _, figures in known],
                [figures.high for _, figures in known],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        axes.set_xticks(list(places), [case.name for case in cases])
        word = "more is better" if unit.better is Better.HIGHER else "less is better"
        axes.set_ylabel(f"{unit.name}, {word}")
        if result.logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
    return figure


def _of(case: CaseResult, side: str) -> Figures | None:
    return next((figures for figures in case.figures if figures.side == side), None)
