"""Tests that the list of mutants is well formed, and that a trial distinguishes killed from surviving mutants."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.catalog import Mutant, StaleEditError, read_mutants
from tests.mutants.results import Results, score
from tests.mutants.trial import Scratch, Verdict, compiled_modules

ROOT = Path(__file__).parents[2]
MUTANTS = read_mutants()


def test_the_list_names_each_mutant_once_and_says_what_it_breaks():
    """Ids are unique, rules and reasons are whole sentences, and each mutant names tests."""
    assert {1} == set(Counter(one.id for one in MUTANTS).values())
    assert len(MUTANTS) > 200
    for mutant in MUTANTS:
        assert mutant.tests, mutant.id
        for sentence in filter(None, (mutant.rule, mutant.harmless)):
            assert sentence.endswith("."), mutant.id
            assert not sentence[0].islower(), mutant.id


SOURCE = "def larger(a, b):\n    return a if a > b else b\n\n\ndef smaller(a, b):\n    return min(a, b)\n"
TESTS = "from storage.bounds import larger\n\n\ndef test_it():\n    assert 3 == larger(3, 2)\n"
KILLED = Mutant("K", "storage/bounds.py", "", ("tests/storage/test_bounds.py",), (("a > b", "a < b"),))
ALIVE = Mutant("A", "storage/bounds.py", "", ("tests/storage/test_bounds.py",), (("min(a, b)", "max(a, b)"),))
STALE = Mutant("S", "storage/bounds.py", "", ("tests/storage/test_bounds.py",), (("a >= b", "a < b"),))
TWICE = Mutant("T", "storage/bounds.py", "", ("tests/storage/test_bounds.py",), (("return", "pass"),))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small git repository with a test, and this project's pytest options."""
    top = tmp_path / "checkout"
    for name, content in {
        "storage/__init__.py": "",
        "storage/bounds.py": SOURCE,
        "tests/__init__.py": "",
        "tests/storage/test_bounds.py": TESTS,
        "tests/randomness.py": (ROOT / "tests" / "randomness.py").read_text(),
        "conftest.py": 'pytest_plugins = ["tests.randomness"]\n',
        "ignored.txt": "",
        ".gitignore": "ignored.txt\n",
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(content)
    subprocess.run(["git", "init", "-q", top], check=True)
    return top


@pytest.mark.slow
def test_a_mutant_is_killed_by_a_test_that_fails(checkout, tmp_path):
    """A failing test kills a mutant; afterwards the copy is restored, and the checkout never changes."""
    scratch = Scratch(checkout, tmp_path / "scratch")
    assert not scratch.unsound(KILLED.tests, uncompiled=False)
    assert [Verdict.KILLED, Verdict.ALIVE] == [scratch.try_out(one, one.tests) for one in (KILLED, ALIVE)]
    assert [SOURCE, SOURCE] == [
        (top / "storage" / "bounds.py").read_text() for top in (checkout, tmp_path / "scratch")
    ]
    assert not (tmp_path / "scratch" / "ignored.txt").exists()
    scratch.remove()
    assert not (tmp_path / "scratch").exists()


@pytest.mark.slow
def test_tests_that_fail_by_themselves_are_found(checkout, tmp_path):
    """Tests that fail without any mutant are reported, because they would kill every mutant."""
    (checkout / "tests" / "storage" / "test_bounds.py").write_text("def test_it():\n    assert False\n")
    assert Scratch(checkout, tmp_path / "scratch").unsound(KILLED.tests, uncompiled=False)


@pytest.mark.parametrize("mutant", [STALE, TWICE], ids=["no longer there", "there twice"])
def test_an_edit_that_does_not_apply_once_is_refused(mutant: Mutant):
    """An edit whose text is missing or occurs twice is refused."""
    with pytest.raises(StaleEditError, match="exactly once"):
        mutant.applied_to(SOURCE)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"file": "storage/gone.py"}, "no such file: storage/gone.py"),
        ({"tests": ("tests/gone.py::test_it",)}, "no such file: tests/gone.py"),
        ({"edits": (("a > b", "a > b"),)}, "changes nothing"),
        ({"edits": (("a > b", "a >"),)}, "leaves no Python"),
        ({"edits": (("a >= b", "a < b"),)}, "exactly once"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_mutant_that_no_longer_fits_the_code_is_found_before_a_trial(checkout, change, reason):
    """`make mutants` lists the mutants that no longer fit the code before it tries any mutant.

    A trial of such a mutant would prove nothing.
    """
    KILLED.check(checkout)
    with pytest.raises(StaleEditError, match=reason):
        replace(KILLED, **change).check(checkout)


def test_a_verdict_counts_until_something_changes(checkout, tmp_path):
    """A verdict is used in later runs until the file, the tests or the edit changes."""
    Results(tmp_path / "kept" / "results", checkout).keep(KILLED, Verdict.KILLED)
    assert Verdict.KILLED is Results(tmp_path / "kept" / "results", checkout).known(KILLED)
    assert Results(tmp_path / "kept" / "results", checkout).known(ALIVE) is None
    (checkout / "tests" / "storage" / "test_bounds.py").write_text(TESTS + "\n")
    assert Results(tmp_path / "kept" / "results", checkout).known(KILLED) is None


def test_the_score_counts_what_matters():
    """The score counts mutants by package and in total; harmless and untried mutants do not count."""
    harmless = Mutant("H", "storage/segment/roll.py", "", (), (), "No reader sees it.")
    lines = score(
        [KILLED, ALIVE, STALE, harmless], {"K": Verdict.KILLED, "A": Verdict.ALIVE, "H": Verdict.ALIVE}
    )
    assert ["storage", "1", "of", "2", "50.0", "%", "alive:", "A"] == lines[-1].split()


def test_the_compiled_modules_are_found_in_setup():
    """Mutants of compiled modules, which setup.py lists, are tried with the plain sources."""
    assert "storage/codec/batch.py" in compiled_modules(ROOT)
    assert frozenset() == compiled_modules(Path(sys.prefix))
