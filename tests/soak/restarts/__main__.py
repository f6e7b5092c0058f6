"""The command `python -m tests.soak restarts`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.soak.crossings.run import read_steps
from tests.soak.restarts import __doc__ as text
from tests.soak.restarts.run import run_lives, shrink


def main(words: Sequence[str] | None = None) -> None:
    """Run one seed after another until the time is up or a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak restarts", description=text)
    parser.add_argument("--seconds", type=float, default=600, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the next ones follow")
    parser.add_argument("--lives", type=int, default=12, help="lives of each seed")
    parser.add_argument(
        "--only", metavar="LIVES", help="only these lives of one seed, as a failure prints them"
    )
    parser.add_argument("--shrink", type=float, default=60, help="seconds for finding fewer lives that fail")
    parser.add_argument("--small-files", action="store_true", help="damage small files only, and no segments")
    asked = parser.parse_args(words)
    logging.disable()  # Recovery logs warnings after each kill.
    deadline, seed = time.monotonic() + asked.seconds, asked.seed
    counts: Counter[str] = Counter()
    while True:
        lives = read_steps(asked.only) if asked.only else range(asked.lives)
        segments = not asked.small_files
        failure = run_lives(seed, lives, counts=counts, segments=segments)
        if failure is not None:
            if not asked.only:
                failure = shrink(failure, seconds=asked.shrink, segments=segments)
            sys.exit(failure.report())
        seed += 1
        if asked.only or time.monotonic() > deadline:
            break
    sys.stdout.write(f"seeds {asked.seed} to {seed - 1}: nothing was lost; {dict(counts)}\n")


if __name__ == "__main__":
    main()
