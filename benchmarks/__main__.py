"""The command: runs benchmarks by name, and shows, stores and draws their results."""

from __future__ import annotations

import importlib
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import click
from rich.console import Console

from benchmarks.frame import page, record
from benchmarks.frame.machine import load, machine_facts
from benchmarks.frame.question import Benchmark
from benchmarks.frame.results import BenchmarkResult, RunResult
from benchmarks.frame.rounds import Progress, run_benchmark
from benchmarks.frame.table import show, show_goals

MODULES: dict[str, str] = {
    "echo": "mount.appends:ECHO",
    "append": "mount.appends:APPEND",
    "bulk": "mount.appends:BULK",
    "stream": "mount.stream",
    "compressed": "mount.compressed",
    "lookup": "mount.lookup",
    "follow": "mount.follow",
    "codec": "engine.codec",
    "recovery": "engine.recovery",
    "compaction": "engine.compaction",
    "start": "engine.start",
    "shell": "peers.shell",
    "listener": "peers.listener",
    "consumers": "peers.consumers",
    "spark": "spark.queries",
}
"""The module of each benchmark, by the benchmark's name on the command line. If the benchmark's constant in the
module is not BENCHMARK, a colon and the constant follow. Benchmarks run in this order.
"""


def load_benchmark(name: str) -> Benchmark:
    """Import one benchmark. Raises ImportError if a library that it compares with is not installed."""
    module, _, constant = MODULES[name].partition(":")
    benchmark = getattr(importlib.import_module(f"benchmarks.{module}"), constant or "BENCHMARK")
    assert isinstance(benchmark, Benchmark)
    assert benchmark.name == name
    return benchmark


FULL_ROUNDS, SHORT_ROUNDS = 9, 3
FULL_SECONDS = 2.0
"""Seconds for the rounds of a case, so that all benchmarks together take 20 minutes."""
Measure: TypeAlias = Callable[..., BenchmarkResult]
"""Runs a benchmark with the options of the command line."""
TABLE_WIDTH = 160
"""Width of the tables if the output goes to a file or a pipe and not to a terminal."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option("--list", "listing", is_flag=True, help="Print the names of all benchmarks and exit.")
@click.option("--short", is_flag=True, help="Use small sizes: all benchmarks take 2 or 3 minutes.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help=f"Largest number of rounds of a case. [default: {FULL_ROUNDS}, {SHORT_ROUNDS} with --short]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    help=f"Begin no fourth or later round of a case after this time. [default: {FULL_SECONDS:g}, or none with --rounds]",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, exists=True),
    help="Folder for the temporary files of the benchmarks. [default: /tmp]",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures to this file.")
@click.option(
    "--plots", type=click.Path(path_type=Path), help="Draw one SVG per benchmark in this directory."
)
@click.option(
    "--page",
    "pages",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Write the results between the marks of this page. May be repeated.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Measure only NAME…; take the other results from this file of --json. May be repeated; the last file wins.",
)
def main(  # noqa: PLR0913 - the options of a command
    names: Sequence[str],
    *,
    listing: bool,
    short: bool,
    rounds: int | None,
    seconds: float | None,
    directory: Path | None,
    json_file: Path | None,
    plots: Path | None,
    pages: Sequence[Path],
    sources: Sequence[Path],
) -> None:
    """Measure how fast topicfs is, compared with references in the same run.

    TOPICFS_BENCH_MOUNT="--acks 0" python -m benchmarks … passes these options to each measured mount.

    The exit status is 1 if a benchmark failed, or a figure became several times worse than ever before.
    """
    # Programs that a benchmark starts cache their compiled modules, as those of an installed package do.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    if listing:
        _list(console)
        return
    chosen = _chosen(names) if names or not sources else []
    measure = partial(
        run_benchmark,
        rounds=rounds or (SHORT_ROUNDS if short else FULL_ROUNDS),
        seconds=seconds if seconds is not None else FULL_SECONDS if rounds is None else math.inf,
        short=short,
        directory=directory,
    )
    kept = [record.from_json(source.read_text()) for source in sources]
    measured = RunResult(
        machine_facts(directory),
        short,
        tuple(_run_with_retry(name, measure, console, again=short) for name in chosen),
    )
    report = record.merged([*kept, measured] if chosen else kept)
    if not chosen:
        for result in report.benchmarks:
            show(result, console)
    show_goals(report, console)
    _keep(report, json_file=json_file, plots_directory=plots, pages=pages)
    sys.exit(0 if all(result.acceptable for result in report.benchmarks) else 1)


def _list(console: Console) -> None:
    for name in MODULES:
        try:
            question = load_benchmark(name).question
        except ImportError as error:
            question = _missing(error)
        console.print(f"[bold]{name:12}[/bold] {question}")


def _chosen(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        raise click.UsageError(
            f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(MODULES)}"
        )
    return [name for name in MODULES if not names or name in names]


def _run_with_retry(name: str, measure: Measure, console: Console, *, again: bool) -> BenchmarkResult:
    """Run a benchmark. If `again` is true and the result is not acceptable, run it once more."""
    result = _run(name, measure, console)
    if again and not result.acceptable:
        console.print(f"{name}: measured again, for the machine may have been busy with something else")
        result = _run(name, measure, console)
    return result


def _run(name: str, measure: Measure, console: Console) -> BenchmarkResult:
    """Run one benchmark and print its results."""
    try:
        benchmark = load_benchmark(name)
    except ImportError as error:
        result = BenchmarkResult(
            name, question="", logarithmic=False, cases=(), seconds=0, skipped=_missing(error)
        )
    else:
        with _progress(console) as progress:
            result = measure(benchmark, progress=progress)
    show(result, console)
    return result


def _missing(error: ImportError) -> str:
    return f"{error}; install the extras it takes: pip install -e '.[bench,kafka,spark]'"


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """Show a line with the case that is being measured; show nothing if there is no terminal."""
    with console.status("") as status:
        yield lambda what: status.update(f"{what}  [dim]load {load():.1f}[/dim]")


def _keep(
    report: RunResult, *, json_file: Path | None, plots_directory: Path | None, pages: Sequence[Path]
) -> None:
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(record.to_json(report))
    if plots_directory is not None:
        from benchmarks.frame import plots

        for result in report.benchmarks:
            plots.draw(result, plots_directory)
    for file in pages:
        pictures = (plots_directory or file.parent).resolve()
        relative = Path(os.path.relpath(pictures, file.parent.resolve()))
        file.write_text(page.filled(file.read_text(), report, relative))


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    # The exception runs every `finally`, so that mounts are unmounted.
    signal.signal(signal.SIGTERM, _end)
    main(prog_name="python -m benchmarks")
