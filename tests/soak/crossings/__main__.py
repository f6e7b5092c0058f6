"""The command `python -m tests.soak crossings`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence

from tests.soak.crossings import __doc__ as text
from tests.soak.crossings.machine import Counts
from tests.soak.crossings.run import read_steps, run_seed, shrink


def main(words: Sequence[str] | None = None) -> None:
    """Run one seed after another until the time is up or a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak crossings", description=text)
    parser.add_argument("--seconds", type=float, default=600, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the next ones follow")
    parser.add_argument("--steps", type=int, default=400, help="steps of each seed")
    parser.add_argument(
        "--only", metavar="STEPS", help="only these steps of one seed, as a failure prints them"
    )
    parser.add_argument(
        "--shrink",
        type=float,
        default=60,
        help="time limit in seconds for shortening a list of steps that fails",
    )
    asked = parser.parse_args(words)
    logging.disable()  # Recovery logs warnings after each kill.
    deadline, counts, seed = time.monotonic() + asked.seconds, Counts(), asked.seed
    while True:
        steps = read_steps(asked.only) if asked.only else range(asked.steps)
        failure = run_seed(seed, steps, deadline=None if asked.only else deadline, counts=counts)
        if failure is not None:
            sys.exit((failure if asked.only else shrink(failure, seconds=asked.shrink)).report())
        seed += 1
        if asked.only or time.monotonic() > deadline:
            break
    sys.stdout.write(
        f"seeds {asked.seed} to {seed - 1}: {sum(counts.steps.values())} steps, {counts.records} records, "
        f"{counts.compacted} compacted, {counts.deleted} deleted\n"
        f"steps {counts.steps}\nkills {counts.kills}\nrefusals {counts.refusals}\n"
    )


if __name__ == "__main__":
    main()
