"""Tests that any bytes can be read as batches: the corpus, many changes of it, and a short coverage-guided run."""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.changes import CORPUS, read_changes
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import read_as_batches

ROOT = Path(__file__).parents[2]
CHANGED_INPUTS = 20_000
GUIDED_RUNS = 4000
GUIDED_TIMEOUT_SECONDS = 280
MEMORY_BYTES = 2 * 1024**3
"""Limit in bytes of the address space: twice the largest content, plus the interpreter with its libraries."""


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_every_input_of_the_corpus_is_read(path):
    """The present build and the plain sources read each input of the corpus without a fault."""
    read_as_batches(path.read_bytes())


def test_the_seeds_are_in_the_corpus():
    """The corpus has the seeds exactly as they are made now, so that a changed format is noticed."""
    uncompressed = {f"seed-{name}": content for name, content in seeds() if "-" not in name}
    assert uncompressed == {name: (CORPUS / name).read_bytes() for name in uncompressed}
    assert {f"seed-{name}" for name, _ in seeds()} <= {path.name for path in CORPUS.iterdir()}


def read_within_bounds() -> None:
    """Read changes of the corpus in a process with limited memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    read_changes(CHANGED_INPUTS)


@pytest.mark.slow
def test_changes_of_the_corpus_are_read_within_bounds():
    """The present build reads random changes of the corpus without a crash, a hang or too much memory."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tests.fuzz.test_fuzz_batches import read_within_bounds; read_within_bounds()",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUIDED_TIMEOUT_SECONDS,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not made for this platform; the corpus ran above",
)
def test_a_short_guided_run_finds_nothing(tmp_path):
    """A few thousand inputs of the guided fuzzer find no fault. `tests/fuzz/__main__.py` has longer runs."""
    # Start the run through a shell, because a program inherits its parent's memory peak, which is large here.
    done = subprocess.run(
        [
            *("sh", "-c", '"$@"; exit $?', "sh"),
            sys.executable,
            *("-m", "tests.fuzz", f"-runs={GUIDED_RUNS}", "-seed=1"),
            *(f"-artifact_prefix={tmp_path}/", str(tmp_path), str(CORPUS)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUIDED_TIMEOUT_SECONDS,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    assert f"Done {GUIDED_RUNS} runs" in done.stderr
