"""Tests that the compiled modules give the same results as their plain sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def digest_of(*options: str) -> tuple[str, str]:
    """Return the name of the build that ran, and the digest of its results for a few hundred batches."""
    command = [sys.executable, "-m", "tests.storage.codec.both_builds", "300", "1", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    build, digest = done.stdout.split()
    return build, digest


def test_both_builds_find_the_same():
    """Both builds give the same scans, records, errors, renderings and parsed batches."""
    compiled, plain = digest_of(), digest_of("--plain")

    assert ("so", "py") == (compiled[0], plain[0])
    assert compiled[1] == plain[1]
