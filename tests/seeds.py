"""`python -m tests.seeds --seeds 200`: run the Hypothesis tests that need neither a mount nor Java, with many seeds.

`make test` runs each of these tests once, with one seed and fewer examples. This command runs seeds in turn, starting
with `--first`. For each seed it prints a line, with the names of failed tests. Arguments after `--` go to pytest, for
example the paths of tests.
"""

# ruff: noqa: T201 - a command, for people

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.randomness import MANY

ROOT = Path(__file__).parents[1]
MARKED = "hypothesis and not fuse and not java and not spark"


def run(seed: int, arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the tests that failed with the seed, and pytest's output."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        MARKED,
        f"--hypothesis-seed={seed}",
        f"--hypothesis-profile={MANY}",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    failed = re.findall(r"(?m)^(?:FAILED|ERROR) (\S+)", done.stdout)
    if done.returncode and not failed:
        failed = [f"pytest ended with status {done.returncode}"]
    return failed, done.stdout + done.stderr


def files() -> list[str]:
    """Return the files with Hypothesis tests, because collecting all files takes longer than some seeds."""
    return [
        str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "hypothesis" in path.read_text()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="how many [20]")
    parser.add_argument("--first", type=int, default=0, help="the first seed [0]")
    parser.add_argument("arguments", nargs="*", metavar="-- ARGUMENT", help="given to pytest")
    asked = parser.parse_args()
    failures = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        began = time.monotonic()
        failed, printed = run(seed, asked.arguments or files())
        print(
            f"seed {seed}: {', '.join(failed) or 'all passed'} ({time.monotonic() - began:.0f} s)", flush=True
        )
        if failed:
            failures += 1
            print(printed, flush=True)
    print(f"{asked.seeds} seeds, {failures} with failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
