"""One mutant at a time, in a copy of the checkout that is used for nothing else."""

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
"""The same examples in each run, so that what is killed once is killed again; none is made smaller, which takes minutes."""
_NO_TESTS = 5


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    ALIVE = "ALIVE"


class TrialError(Exception):
    """The tests could not be run, or fail without any mutant."""


class Scratch:
    """A copy of a checkout, its untracked files and built modules included, with the Python environment of this run."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        """Copy into `folder`, which must not exist."""
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
        """Make the edit, and run tests. Raises TrialError, StaleEditError."""
        path = self._folder / mutant.file
        source = path.read_text()
        path.write_text(mutant.applied_to(source))
        try:
            lives = self._pass(tests, uncompiled=self.is_compiled(mutant))
        finally:
            path.write_text(source)
        return Verdict.ALIVE if lives else Verdict.KILLED

    def unsound(self, tests: Sequence[str], *, uncompiled: bool) -> bool:
        """Whether tests fail over the code as it is: then they would kill every mutant. Raises TrialError."""
        return not self._pass(tests, uncompiled=uncompiled)

    def is_compiled(self, mutant: Mutant) -> bool:
        """Whether the edit shows only in the plain source of a compiled module."""
        return mutant.file in self._compiled

    def _pass(self, tests: Sequence[str], *, uncompiled: bool) -> bool:
        """Whether tests pass; those that do not end do not."""
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
            raise TrialError(f"no tests: {' '.join(tests)}\n{printed.decode()[-2000:]}")
        return process.returncode == 0


def compiled_modules(checkout: Path) -> frozenset[str]:
    """The sources that setup.py lists."""
    path = checkout / "setup.py"
    if not path.exists():
        return frozenset()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def _files(checkout: Path) -> list[str]:
    """What git knows or would take, and the modules that were built."""
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
    """End the tests and whatever they started, as a group of their own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
