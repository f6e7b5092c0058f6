"""Tests that run for any length of time: `python -m tests.soak NAME [OPTION...]`, where NAME is one of `RUNS`.

Errors in how the request loop, the waiting reads and the threads interact show only under mixed load, and some of the
errors only after a long time. `loads` has the programs that use a mount, each in its own process. `cycle` mounts,
runs all of these programs, ends the mount while they use it, and checks that every line whose write returned is
stored once and in order. The test suite has a short form of each test.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RUNS = {
    "mount": "tests.soak.mount",
    "followers": "tests.soak.followers",
    "kills": "tests.soak.kills",
    "replicas": "tests.soak.replicas",
    "power": "tests.soak.power",
    "mirror": "tests.soak.mirror",
    "appends": "tests.soak.appends",
    "queries": "tests.soak.queries",
    "scrub": "tests.soak.scrub",
    "crossings": "tests.soak.crossings",
    "restarts": "tests.soak.restarts",
    "work": "tests.soak.work",
    "compatibility": "tests.soak.compatibility",
    "fuzz": "tests.fuzz",
}
"""Module by the name of the test; docs/testing.md describes the tests."""


def say(text: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def kept_if_failed() -> Iterator[Path]:
    """Make a folder for the block and print its path. If the block fails, the folder stays."""
    folder = Path(tempfile.mkdtemp())
    say(f"in {folder}")
    yield folder
    shutil.rmtree(folder)
