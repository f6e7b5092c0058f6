"""Trials of one mutant at a time in a scratch copy of the checkout."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from tests.mutants.catalog import Mutant
from tests.randomness import FIRST_FAILURE

EACH_TEST_SECONDS, ALL_TESTS_SECONDS = 120, 2400
SEEDS = ("--hypothesis-seed=0", "--random-seed=0", f"--hypothesis-profile={FIRST_FAILURE}")
"""Fixed seeds, so that a killed mutant is killed again. Failing examples are not minimized, which would take minutes."""
_NO_TESTS = 5


class Verdict(Enum):
    """The result of a mutant's trial."""

    KILLED = "killed"
    ALIVE = "ALIVE"


class TrialError(Exception):
    """The tests could not be run, or they fail even without a mutant."""


class Scratch:
    """A copy of a checkout with untracked files and built modules. Its tests use this run's Python environment."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        """Copy the checkout into `folder`, which must not exist."""
        self._folder = folder
        for name in _files(checkout):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, target, follow_symlinks=False)
        if (checkout / ".venv").exists():
            (folder / ".venv").symlink_to((checkout / ".venv").resolve())
        self._compiled = compiled_modules(folder)

    def remove(self) -> None:
        shutil.rmtree(self._folder)

    def try_out(self, mutant: Mutant, tests: Sequence[str]) -> Verdict:
        """Make the edit, run the tests, and return the verdict. Raises TrialError and StaleEditError."""
        path = self._folder / mutant.file
        source = path.read_text()
        path.write_text(mutant.applied_to(source))
        try:
            lives = self._pass(tests, uncompiled=self.is_compiled(mutant))
        finally:
            path.write_text(source)
        return Verdict.ALIVE if lives else Verdict.KILLED

    def unsound(self, tests: Sequence[str], *, uncompiled: bool) -> bool:
        """Return whether tests fail with the unchanged code and so would kill every mutant. Raises TrialError."""
        return not self._pass(tests, uncompiled=uncompiled)

    def is_compiled(self, mutant: Mutant) -> bool:
        """Return whether the mutant changes a compiled module. Its tests must then run with the plain sources."""
        return mutant.file in self._compiled

    def _pass(self, tests: Sequence[str], *, uncompiled: bool) -> bool:
        """Return whether the tests pass; tests that do not end in time count as failed."""
        build = ("-p", "tests.uncompiled", "--uncompiled") if uncompiled else ()
        options = ("-x", "-q", "-p", "no:cacheprovider", f"--timeout={EACH_TEST_SECONDS}", *SEEDS, *build)
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=ALL_TESTS_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(process)
        if process.returncode == _NO_TESTS:
            raise TrialError(f"pytest found no tests: {' '.join(tests)}\n{printed.decode()[-2000:]}")
        return process.returncode == 0


def compiled_modules(checkout: Path) -> frozenset[str]:
    """Return the sources that setup.py compiles."""
    path = checkout / "setup.py"
    if not path.exists():
        return frozenset()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def _files(checkout: Path) -> list[str]:
    """Return the files that git tracks or would add, and the built modules."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        capture_output=True,
        check=True,
    ).stdout.decode()
    built = [
        source.removesuffix(".py") + suffix.name.removeprefix(Path(source).stem)
        for source in compiled_modules(checkout)
        for suffix in (checkout / source).parent.glob(f"{Path(source).stem}.*.so")
    ]
    return [
        name
        for name in (*listed.split("\0"), *built)
        if name and ((checkout / name).is_file() or (checkout / name).is_symlink())
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the tests' process group and all processes that the tests started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
