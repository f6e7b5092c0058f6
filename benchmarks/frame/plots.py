"""Draws one picture per benchmark: SVG, with the same bytes for the same figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.frame.question import OURS, Better, Unit
from benchmarks.frame.results import BenchmarkResult, CaseResult
from benchmarks.frame.table import number

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "topicfs",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
SPREAD = "#333333"
OUR_COLOR = "#0b6e99"
OTHER_COLORS = ("#9aa5ab", "#d9a441", "#7fb685", "#b07aa1", "#c97b63", "#5f6b73")
BAR_INCHES = 0.21
WIDTH_INCHES = 8.0


def draw(result: BenchmarkResult, directory: Path) -> Path | None:
    """Write `NAME.svg` into `directory`; return None if there is nothing to draw."""
    if not result.cases:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.name}.svg"
    with mpl.rc_context(STYLE):
        figure = _figure(result)
        # The picture has no date, so that it changes only when its figures do.
        figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    return path


def _by_unit(result: BenchmarkResult) -> Iterator[tuple[Unit, Sequence[CaseResult]]]:
    for unit in dict.fromkeys(case.unit for case in result.cases):
        yield unit, [case for case in result.cases if case.unit == unit]


def _colors(cases: Sequence[CaseResult]) -> dict[str, str]:
    others = itertools.cycle(OTHER_COLORS)
    sides = dict.fromkeys(figures.side for case in cases for figures in case.figures)
    return {side: OUR_COLOR if side == OURS else next(others) for side in sides}


def _axes(figure: Figure, heights: Sequence[float]) -> Sequence[Axes]:
    grid = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    return [row[0] for row in grid]


def _figure(result: BenchmarkResult) -> Figure:
    """Draw a group per case and a row per side: the median, and a line from the lowest to the highest round.

    On a logarithmic scale each median is a point, because the length of a bar would have no meaning there.
    """
    parts = list(_by_unit(result))
    heights = [BAR_INCHES * sum(len(case.figures) + 1 for case in cases) + 0.6 for _unit, cases in parts]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
    figure.suptitle(result.question)
    colors = _colors(result.cases)
    for axes, (unit, cases) in zip(_axes(figure, heights), parts, strict=True):
        _scale(axes, unit, logarithmic=result.logarithmic)
        _groups(axes, cases, colors, points=result.logarithmic)
        _legend(axes, cases, colors)
    return figure


def _groups(axes: Axes, cases: Sequence[CaseResult], colors: dict[str, str], *, points: bool) -> None:
    places: list[float] = []
    place = 0.0
    for case in cases:
        for index, figures in enumerate(case.figures):
            color = colors[figures.side]
            if points:
                axes.plot(figures.median, place + index, "o", color=color)
            else:
                axes.barh(place + index, figures.median, height=0.85, color=color)
            axes.hlines(
                place + index, figures.low, figures.high, color=color if points else SPREAD, linewidth=1
            )
            axes.annotate(
                number(figures.median),
                (figures.high, place + index),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=SPREAD,
            )
        places.append(place + (len(case.figures) - 1) / 2)
        place += len(case.figures) + 1
    axes.set_yticks(places, [case.name for case in cases])
    axes.tick_params(axis="y", length=0)
    # The axis runs from top to bottom, with some space between the frame and the points next to it.
    axes.set_ylim(place - 2 + 0.6, -0.6)
    axes.margins(x=0.12)


def _scale(axes: Axes, unit: Unit, *, logarithmic: bool) -> None:
    if logarithmic:
        axes.set_xscale("log")
        axes.grid(axis="x", color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(b=True)
    word = "more is better" if unit.better is Better.HIGHER else "less is better"
    scale = ", logarithmic" if logarithmic else ""
    axes.set_xlabel(f"{unit.name}{scale}; {word}")


def _legend(axes: Axes, cases: Sequence[CaseResult], colors: dict[str, str]) -> None:
    sides = dict.fromkeys(figures.side for case in cases for figures in case.figures)
    handles = [Patch(color=colors[side], label=side) for side in sides]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)
