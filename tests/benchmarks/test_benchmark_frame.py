"""Tests of the benchmarks' framework: alternating rounds, ratios, goals, and reproducible pictures."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks.__main__ import MODULES, load_benchmark, main
from benchmarks.frame import page, plots, record, summary, units
from benchmarks.frame.question import Benchmark, Case, Goal, Side, SkippedError, Unit, WrongResultError
from benchmarks.frame.results import BenchmarkResult, CaseResult, Figures, RunResult, Verdict
from benchmarks.frame.rounds import Figure, measure_case, run_benchmark, shared_cases
from benchmarks.frame.table import show, show_goals

pytestmark = pytest.mark.slow

SPEED = units.MEGABYTES_A_SECOND
ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/performance.md", "docs/performance/tables.md")


def case_result(
    unit: Unit, ours: tuple[float, ...], other: tuple[float, ...], *, target=None, floor=None
) -> CaseResult:
    figures = (Figures("topicfs", ours), Figures("other", other))
    return CaseResult("a case", unit, figures, (Goal(of="other", target=target, floor=floor),))


def run(cases, **how) -> BenchmarkResult:
    benchmark = Benchmark(name="toy", question="How fast is a toy?", cases=cases)
    return run_benchmark(benchmark, rounds=3, short=True, progress=lambda what: None, **how)


def two_sides(conditions):
    yield Case(
        name="a case",
        unit=SPEED,
        sides=(Side("topicfs", lambda: 50.0), Side("other", lambda: 100.0)),
        goals=(Goal(of="other", target=0.8, floor=0.3),),
    )


def test_sides_alternate_in_each_round():
    """After a warm-up of both sides the order is A B, B A, A B, so that a slower machine affects both sides alike."""
    order: list[str] = []
    numbers = itertools.count().__next__

    def side(name: str) -> Side:
        return Side(name, lambda: order.append(name) or numbers())

    result = measure_case(Case(name="a case", unit=SPEED, sides=(side("a"), side("b"))), rounds=3)
    assert list("ababbaab") == order
    assert (2, 5, 6) == result.of("a").rounds


def test_max_rounds_limits_the_rounds():
    """`max_rounds` limits the number of rounds, and `warm_up=False` omits the warm-up."""
    times: list[int] = []
    side = Side("a", lambda: times.append(1) or 1.0)
    measure_case(Case(name="", unit=SPEED, sides=(side,), max_rounds=2, warm_up=False), rounds=5)
    assert 2 == len(times)


def test_a_case_ends_after_its_time_but_has_three_rounds():
    """A case runs at least three rounds, even if its time is over. A case that reuses these rounds has equally many."""
    figure = Figure("", SPEED, float, ())
    first, again = shared_cases({"a": itertools.count().__next__}, figure, figure, warm_up=False)
    assert (0.0, 1.0, 2.0) == measure_case(first, rounds=9, seconds=0).of("a").rounds
    assert (0.0, 1.0, 2.0) == measure_case(again, rounds=9).of("a").rounds


def test_the_ratio_is_the_median_of_the_rounds_ratios():
    """A ratio is the median of the ratios of single rounds, so a machine that becomes slower does not change it."""
    result = case_result(SPEED, (80.0, 8.0, 81.0), (100.0, 10.0, 100.0), target=0.8)
    assert 0.8 == result.outcomes[0].ratio
    assert Verdict.REACHED is result.outcomes[0].verdict


@pytest.mark.parametrize(
    ("unit", "ours", "verdict", "missing"),
    [
        (SPEED, 80.0, Verdict.REACHED, None),
        (SPEED, 40.0, Verdict.MISSED, 2.0),
        (SPEED, 10.0, Verdict.BELOW_FLOOR, 8.0),
        (units.MICROSECONDS, 80.0, Verdict.REACHED, None),
        (units.MICROSECONDS, 25.0, Verdict.REACHED, None),
    ],
)
def test_a_goal_counts_in_the_direction_of_its_unit(unit, ours, verdict, missing):
    """A goal is a minimum if more is better, otherwise a maximum; the missing factor is the improvement needed."""
    outcome = case_result(unit, (ours,), (100.0,), target=0.8, floor=0.3 if unit is SPEED else 2).outcomes[0]
    assert (verdict, missing) == (outcome.verdict, outcome.missing_factor)


def test_a_latency_above_its_goal_and_its_floor():
    """If less is better, a figure above the goal misses the goal, and a figure above the floor fails."""
    missed = case_result(units.MICROSECONDS, (300.0,), (100.0,), target=2, floor=4).outcomes[0]
    assert (Verdict.MISSED, 1.5) == (missed.verdict, missed.missing_factor)
    assert (
        Verdict.BELOW_FLOOR
        is case_result(units.MICROSECONDS, (500.0,), (100.0,), floor=4).outcomes[0].verdict
    )


def test_an_error_keeps_earlier_cases_and_cleans_up(tmp_path):
    """After an error earlier cases are kept, setup and directory are removed, and the run counts as failed."""
    ended: list[Path] = []

    def cases(conditions):
        try:
            yield from two_sides(conditions)
            yield Case(name="wrong", unit=SPEED, sides=(Side("topicfs", raises),))
        finally:
            ended.append(conditions.directory)

    def raises() -> float:
        raise WrongResultError("3 lines of 4 arrived")

    result = run(cases, directory=tmp_path)
    assert ["a case"] == [case.name for case in result.cases]
    assert result.failed is not None
    assert "3 lines of 4 arrived" in result.failed
    assert not result.acceptable
    assert [] == list(tmp_path.iterdir())
    assert 1 == len(ended)


def test_a_benchmark_that_cannot_run_says_why():
    """A skipped benchmark shows its reason and does not count as failed."""

    def cases(conditions):
        raise SkippedError("Java is missing: install it")
        yield

    result = run(cases)
    console = Console(record=True, width=140)
    show(result, console)
    assert result.acceptable
    assert "Java is missing: install it" in console.export_text()


def test_the_table_tells_figures_goal_and_missing_factor():
    """The table has a row for each side, with the goal, the goal's direction, and the missing factor."""
    console = Console(record=True, width=140)
    show(run(two_sides), console)
    shown = [line.split() for line in console.export_text().splitlines()]
    assert ["a", "case", "topicfs", "50.0", "MB/s", "50.0", "to", "50.0", "0.5×", "other"] == shown[2][:10]
    assert ["≥", "0.8×", "missing", "1.60×"] == shown[2][10:]
    assert ["other", "100", "MB/s", "100", "to", "100"] == shown[3]


def test_the_last_table_has_all_goals():
    """The last table has all goals of a run, each reached or with its missing factor."""
    console = Console(record=True, width=140)
    show_goals(RunResult({}, True, (run(two_sides),)), console)
    shown = [line.split() for line in console.export_text().splitlines()]
    assert ["toy", "a", "case", "topicfs", "MB/s", "0.5×", "other", "≥", "0.8×", "missing", "1.60×"] == shown[
        2
    ]


def test_a_run_comes_back_from_its_json():
    """A run can be read from its JSON, with everything that tables, plots and pages need."""
    report = RunResult({"cores": "2"}, True, (run(two_sides),))
    assert report == record.from_json(record.to_json(report))


def test_the_last_result_of_each_benchmark_counts():
    """If a benchmark ran several times, its last result counts, so that a single benchmark can be measured again."""
    first, again = run(two_sides), run(two_sides)
    other = BenchmarkResult("other", "?", False, (), 1.0)
    reports = [RunResult({"cores": "2"}, False, (first, other)), RunResult({"cores": "4"}, False, (again,))]
    assert RunResult({"cores": "4"}, False, (again, other)) == record.merged(reports)


def test_a_picture_is_the_same_for_the_same_figures(tmp_path):
    """Equal figures give a picture with equal bytes, so that a committed picture changes only with its figures."""
    result = run(two_sides)
    first, second = plots.draw(result, tmp_path / "a"), plots.draw(result, tmp_path / "b")
    assert first is not None
    assert second is not None
    assert first.read_bytes() == second.read_bytes()
    assert b"How fast is a toy?" in first.read_bytes()


def test_the_page_keeps_its_prose():
    """Writing a page changes only the text between the marks of benchmarks that have run."""
    text = "Before\n<!-- figures of toy -->\nold\n<!-- end of toy -->\nAfter\n<!-- figures of x -->\nkept\n<!-- end of x -->"
    filled = page.filled(text, RunResult({}, True, (run(two_sides),)), Path("performance"))
    assert filled.startswith(
        "Before\n<!-- figures of toy -->\n\n![How fast is a toy?](performance/toy.svg)\n"
    )
    assert "| a case | topicfs | 50.0 MB/s | 50.0 to 50.0 | 0.5× | other | ≥ 0.8× | missing 1.60× |" in filled
    assert "old" not in filled
    assert filled.endswith("<!-- end of toy -->\nAfter\n<!-- figures of x -->\nkept\n<!-- end of x -->")


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_has_its_registered_name(name):
    """Every benchmark can be imported, and has the name under which it is registered."""
    assert name == load_benchmark(name).name


@pytest.mark.parametrize("name", [*MODULES, *summary.TABLES, "machine", "goals"])
def test_the_pages_have_a_place_for_every_table(name):
    """Every benchmark's table has a place in a page."""
    text = "".join((ROOT / page).read_text() for page in PAGES)
    assert 1 == text.count(f"<!-- figures of {name} -->")
    assert 1 == text.count(f"<!-- end of {name} -->")


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_show_the_figures_that_are_kept(name):
    """Drawing a page from the committed figures does not change the page."""
    pictures = ROOT / "docs/performance"
    report = record.from_json((pictures / "figures.json").read_text())
    text = (ROOT / name).read_text()
    relative = Path(os.path.relpath(pictures, (ROOT / name).parent))
    assert text == page.filled(text, report, relative)


def test_a_summary_compares_with_the_other_side():
    """A summary compares sides by the median ratio of the rounds; if figures are missing, there is no table."""
    report = RunResult({}, True, (run(two_sides),))
    [row] = summary.table(report, (summary.Line("a toy", "toy", "a case", "other"),)).splitlines()[2:]
    assert "| a toy | 50.0 MB/s | other: 100 MB/s | 2.00× slower |" == row
    assert None is summary.table(report, (summary.Line("a toy", "toy", "no such case", "other"),))


def test_an_unknown_name_gives_an_error_with_all_names():
    """An unknown name is an error that lists the known names, before anything is measured."""
    answer = CliRunner().invoke(main, ["no-such"])
    assert 2 == answer.exit_code
    assert "no benchmark is called no-such" in answer.output


def test_a_disturbed_run_alone_is_not_below_the_floor():
    """A run fails only if its median and its best round are below the floor, as other programs may disturb rounds."""
    result = case_result(SPEED, (10.0, 10.0, 90.0), (100.0, 100.0, 100.0), target=0.8, floor=0.3)
    assert 0.1 == result.outcomes[0].ratio
    assert Verdict.MISSED is result.outcomes[0].verdict


def test_a_case_can_reuse_the_rounds_of_another():
    """A case that reuses another case's rounds measures nothing. It takes the rounds in order, the warm-up included."""
    numbers = itertools.count().__next__
    tens = Figure("", SPEED, lambda number: 10.0 * number, ())
    first, again = shared_cases({"a": numbers}, Figure("", SPEED, float, ()), tens)
    assert (1.0, 2.0) == measure_case(first, rounds=2).of("a").rounds
    assert (10.0, 20.0) == measure_case(again, rounds=2).of("a").rounds


@pytest.mark.parametrize(
    ("figures", "status", "measured"),
    [((50.0,), 0, 1), ((1.0, 50.0), 0, 2), ((1.0, 1.0), 1, 2)],
    ids=["well at once", "well again", "slow twice"],
)
def test_the_short_form_fails_only_after_two_slow_measurements(monkeypatch, figures, status, measured):
    """The short form fails only if two measurements are below the floor.

    The machine may have been busy during one of the measurements.
    """
    runs = iter(figures)
    seen: list[float] = []

    def cases(conditions):
        seen.append(next(runs))
        [case] = two_sides(conditions)
        yield replace(case, sides=(Side("topicfs", lambda: seen[-1]), case.sides[1]))

    toy = Benchmark(name="codec", question="How fast is a toy?", cases=cases)
    monkeypatch.setattr("benchmarks.__main__.load_benchmark", lambda name: toy)
    answer = CliRunner().invoke(main, ["codec", "--short"])
    assert (status, measured) == (answer.exit_code, len(seen))
