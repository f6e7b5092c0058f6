"""The plots of a report, drawn by matplotlib. Each plot is a piece of SVG to include in a page.

A plot is drawn in placeholder colors, which become variables of the page (`var(--ink)`, …), so that the same drawing
fits a light and a dark page. Text stays text. Equal numbers give equal bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, cast

import matplotlib as mpl
import numpy as np
from matplotlib import dates as untyped_dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from topicfs.pipeline.report.histograms import SizeHistogram, bin_start
from topicfs.pipeline.report.page.formatting import duration, short, size
from topicfs.pipeline.report.page.selection import TimeAxis

INK, GRID, PAPER = "#010101", "#020202", "#030303"
SHADES = tuple(f"#0401{number:02x}" for number in range(8))
"""Placeholder colors of a topic's partitions."""
KEYS, VALUES, LAG = "#050101", "#050102", "#050103"
NAMES = {
    INK: "--ink",
    GRID: "--grid",
    PAPER: "--paper",
    KEYS: "--keys",
    VALUES: "--values",
    LAG: "--lag",
    **{color: f"--shade-{number}" for number, color in enumerate(SHADES)},
}
"""The page's variable for each placeholder color. A drawing uses no other colors."""

_DAY_MS = 86_400_000
_SETTINGS: dict[str, Any] = {
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "path.simplify": False,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.color": GRID,
    "ytick.labelcolor": INK,
    "ytick.left": False,
}
_LAG_TICKS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 86_400_000, 864_000_000)


class Panel(NamedTuple):
    """Size of a drawing, in inches of 72 points; the page scales it to its column."""

    width: float
    height: float

    def margins(self, *, left: float, below: float) -> dict[str, float]:
        """Return the margins for labels as shares of the panel: equal for all panels of a kind, so that axes align."""
        width, height = 72 * self.width, 72 * self.height
        return {
            "left": left / width,
            "right": 1 - 18 / width,
            "top": 1 - 6 / height,
            "bottom": below / height,
        }


OVER_TIME, BY_SIZE = {"left": 50.0, "below": 36.0}, {"left": 14.0, "below": 22.0}
"""Margins for labels, in points."""
SMALL = Panel(4.6, 2.2)
WIDE = Panel(11.4, 3.0)
"""Size of a panel that has the whole width. On a narrow page, a drawing of size `SMALL` is shown instead."""


def over_time(
    axis: TimeAxis, series: Sequence[Sequence[float]], *, panel: Panel, in_bytes: bool, name: str
) -> str:
    """Draw the series on top of each other, a value per bucket of `axis`. `name` is unique among a page's drawings."""
    with _drawing(panel, name, OVER_TIME) as drawing:
        axes = drawing.axes
        edges = (np.arange(len(series[0]) + 1) * axis.width_ms + axis.start_ms) / _DAY_MS
        below = np.zeros(len(series[0]))
        for number, amounts in enumerate(series):
            upper = below + np.asarray(amounts, np.float64)
            color = SHADES[number % len(SHADES)]
            # `stairs` would compute the limits of the axes for each line of a patch; the limits are set
            # below.
            axes.add_artist(
                StepPatch(upper, edges, baseline=cast("Any", below), fill=True, color=color, linewidth=0)
            )
            below = upper
        axes.set_xlim(edges[0], edges[-1])
        axes.xaxis_date("UTC")
        dates: Any = untyped_dates  # Its classes have no types.
        locator = dates.AutoDateLocator(tz="UTC", minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz="UTC"))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        shown = size if in_bytes else short
        axes.yaxis.set_major_formatter(FuncFormatter(lambda amount, _: shown(amount)))
        axes.set_ylim(0, max(float(below.max()) * 1.05, 1))
    return drawing.svg


def sizes(
    keys: SizeHistogram, values: SizeHistogram, bounds: tuple[int, int], *, panel: Panel, name: str
) -> str:
    """Draw how many keys and values have each size, with powers of two on the axis, in the bins of `bounds`."""
    with _drawing(panel, name, BY_SIZE) as drawing:
        axes = drawing.axes
        for histogram, color in ((values, VALUES), (keys, KEYS)):
            _steps(axes, histogram, bounds, color)
        _size_ticks(axes, bounds)
        _no_heights(axes)
    return drawing.svg


def lags(histogram: SizeHistogram, bounds: tuple[int, int], *, panel: Panel, name: str) -> str:
    """Draw how many records have each lag, with a logarithmic axis."""
    with _drawing(panel, name, BY_SIZE) as drawing:
        axes = drawing.axes
        _steps(axes, histogram, bounds, LAG)
        low, high = _edges(bounds)[[0, -1]]
        ticks = [tick for tick in _LAG_TICKS if low <= np.log2(tick) <= high]
        axes.xaxis.set_major_locator(FixedLocator([float(np.log2(tick)) for tick in ticks]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: duration(round(2**at))))
        _no_heights(axes)
    return drawing.svg


def segment_lags(topics: Sequence[tuple[str, Sequence[int]]], *, panel: Panel, name: str) -> str:
    """Draw a line per topic, with a dot per segment: the time from its largest timestamp to its last append."""
    with _drawing(Panel(panel.width, 0.7 + 0.32 * len(topics)), name) as drawing:
        axes = drawing.axes
        for line, (_, found) in enumerate(topics):
            shown = [max(lag_ms, 1) for lag_ms in found]
            axes.plot(shown, [line] * len(shown), "o", color=LAG, alpha=0.5, markersize=5, markeredgewidth=0)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        low = max((tick for tick in _LAG_TICKS if tick <= low), default=low)
        axes.set_xlim(low, min((tick for tick in _LAG_TICKS if tick >= high), default=high))
        axes.xaxis.set_major_locator(FixedLocator(_LAG_TICKS))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: duration(round(at))))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks(range(len(topics)), [_cut(topic, 30 if panel is WIDE else 16) for topic, _ in topics])
        axes.set_ylim(len(topics) - 0.4, -0.6)
        axes.grid(visible=True, axis="both")
    return drawing.svg


def _cut(name: str, most: int) -> str:
    """Shorten a name in its middle, because names of topics usually differ at the beginning or the end."""
    kept = most // 2 - 1
    return name if len(name) <= most else f"{name[: most - kept - 1]}…{name[-kept:]}"


def _steps(axes: Axes, histogram: SizeHistogram, bounds: tuple[int, int], color: str) -> None:
    """Draw the share of sizes in each bin, as a faintly filled outline. Every histogram has the same area.

    Bins differ in width on a logarithmic axis, so a height is the share divided by the width.
    """
    if not histogram.count:
        return
    counts = [histogram.bins.get(number, 0) for number in range(bounds[0], bounds[1] + 1)]
    edges = _edges(bounds)
    heights = np.asarray(counts, np.float64) / histogram.count / np.diff(edges)
    axes.stairs(heights, edges, fill=True, color=color, alpha=0.25, linewidth=0)
    axes.stairs(heights, edges, color=color, linewidth=1.4)


def _no_heights(axes: Axes) -> None:
    """Hide the scale of heights, because only areas have a meaning."""
    axes.yaxis.set_major_locator(NullLocator())
    axes.set_ylim(bottom=0)


def _edges(bounds: tuple[int, int]) -> Any:
    """Return the edges of bins as exponents of two. Size 0 is drawn one step below size 1."""
    starts = np.array([bin_start(number) for number in range(bounds[0], bounds[1] + 2)], np.float64)
    return np.log2(np.maximum(starts, 0.5))


def _size_ticks(axes: Axes, bounds: tuple[int, int]) -> None:
    low, high = _edges(bounds)[[0, -1]]
    step = max(1, round((high - low) / 6))
    ticks = list(range(int(np.ceil(max(low, 0))), int(np.floor(high)) + 1, step))
    axes.xaxis.set_major_locator(FixedLocator([*([-1.0] if low < 0 else []), *map(float, ticks)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: "0 B" if at < 0 else _binary(round(at))))


def _binary(power: int) -> str:
    """Format two to the power `power` as a number of bytes."""
    unit, rest = divmod(power, 10)
    return f"{2**rest} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


@dataclass(slots=True)
class _Drawing:
    axes: Axes
    svg: str = ""
    """The SVG; set when the drawing is complete."""


@contextmanager
def _drawing(panel: Panel, name: str, room: Mapping[str, float] | None = None) -> Iterator[_Drawing]:
    """Yield axes to draw on, without the user's matplotlib settings. Without `room`, labels take the room they need."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(cast("Any", _SETTINGS))
        mpl.rcParams["svg.hashsalt"] = name
        figure = Figure(figsize=panel, layout="constrained" if room is None else None)
        if room is not None:
            figure.subplots_adjust(**panel.margins(**room))
        drawing = _Drawing(figure.add_subplot())
        drawing.axes.grid(visible=True, axis="y")
        yield drawing
        drawing.svg = _svg(figure)


_SIMPLER = (
    (re.compile(r"<metadata>.*?</metadata>", re.DOTALL), ""),
    (re.compile(r"<style.*?</style>", re.DOTALL), ""),
    (re.compile(r'<g id="[^"]*"'), "<g"),
    (re.compile(r" font-family: [^;\"]*;"), ""),
    (re.compile(r' transform="rotate\(-?0 [^"]*"'), ""),
    (re.compile(r"\s*\n\s*"), "\n"),
)
"""Parts of the SVG to remove, because a page of many drawings does not need them, such as styles and names of groups."""
_TAG = re.compile(r"<[^>]*>")
_FRACTION = re.compile(r"(\d\.\d)\d+")
"""Matches a number with several decimals. In tags, only its first decimal is kept: others make less than a pixel."""


def _svg(figure: Figure) -> str:
    """Return the figure as an `<svg>` element with the page's color variables."""
    output = io.StringIO()
    figure.savefig(output, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = output.getvalue()
    text = text[text.index("<svg") :]
    for pattern, replacement in _SIMPLER:
        text = pattern.sub(replacement, text)
    text = _TAG.sub(lambda tag: _FRACTION.sub(r"\1", tag[0]), text)
    for color, variable in NAMES.items():
        text = text.replace(color, f"var({variable})")
    return text


def described(svg: str, description: str, shown: str = "") -> str:
    """Return the drawing with a description for screen readers.

    `shown` is a CSS class by which the page shows the drawing only at some widths.
    """
    label = escape(description, quote=True)
    head, _, rest = svg.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    on = f' class="{shown}"' if shown else ""
    return f'{head}{on} role="img" aria-label="{label}">{rest}'
