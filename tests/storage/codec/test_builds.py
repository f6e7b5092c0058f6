"""The compiled modules and their plain sources: the same results, in one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def digest_of(*options: str) -> tuple[str, str]:
    """Which build ran, and what it found in a few hundred batches."""
    command = [sys.executable, "-m", "tests.storage.codec.both_builds", "300", "1", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    build, digest = done.stdout.split()
    return build, digest


def test_both_builds_find_the_same():
    """Scans, records, errors, renderings and what the renderings parse to, over sound and damaged batches."""
    compiled, plain = digest_of(), digest_of("--plain")

    assert ("so", "py") == (compiled[0], plain[0])
    assert compiled[1] == plain[1]
