"""The short forms of the soak tests of a mount."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import RUNS
from tests.soak.cycle import run_cycle
from tests.soak.followers import follow_for
from tests.soak.full_disk import keep_full

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 60


@pytest.mark.fuse
def test_everything_at_once(tmp_path: Path):
    """Under all loads no line is lost, duplicated, reordered or stuck, and the mount ends cleanly."""
    cycle = run_cycle(tmp_path / "soak", seconds=2)

    assert {
        name
        for name, seen in cycle.seen.items()
        for counted, value in seen.items()
        if not value and counted != "syncs"
    } == set()


@pytest.mark.slow
def test_followers_of_all_speeds(tmp_path: Path):
    """Fifty followers get every line once and in order despite aborts and rolls, unless retention overtakes them."""
    counts = follow_for(tmp_path / "data", seconds=2, seed=1)

    assert set() == {
        name for name in ("lines", "commits", "aborts", "deleted", "followers") if not counts[name]
    }


@pytest.mark.root
@pytest.mark.fuse
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk_gets_space_again_in_every_way(tmp_path: Path, kind: str) -> None:
    """A full disk gets space by retention, compaction, deletion and a raised start, and the mount ends cleanly."""
    seen = keep_full(tmp_path, seconds=4, kind=kind, size_mb=32)
    assert {"given back: delete", "given back: shorten", "given back: raise_start"} < set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("words", [*([name] for name in RUNS), ["fuzz", "requests"]], ids=" ".join)
def test_help_shows_the_options_and_runs_nothing(words: list[str], tmp_path: Path):
    """`--help` of each long test prints the options and runs no test."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak", *words, "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (0, "") == (ran.returncode, ran.stderr)
    assert "--seconds" in ran.stdout or "--seed" in ran.stdout or "--kills" in ran.stdout
    assert [] == [*tmp_path.iterdir()]
