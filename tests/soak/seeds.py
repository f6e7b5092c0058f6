"""Runs one seed after another, reports the first failure, and looks for fewer steps that also fail.

All choices of a step follow from the seed and the number of the step.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass
class Failure:
    """A seed that failed: the steps up to the failure, and the error."""

    command: str
    """The words after `python -m tests.soak` that run the seed, without the numbers of the steps."""
    steps: Sequence[int]
    log: Sequence[str]
    error: str

    def report(self) -> str:
        """Return the log of the steps, the error, and the command that repeats the steps."""
        again = f"again: python -m tests.soak {self.command} --only {spelled(self.steps)}"
        return "\n".join([*self.log, self.error, again])


RunSeed = Callable[[int, Sequence[int]], Failure | None]
"""Takes steps of a seed; returns the failure that ends them, or None (blocking)."""


def spelled(steps: Iterable[int]) -> str:
    """Return step numbers as ranges, for example 0-3,7."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    return ",".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)


def read_steps(text: str) -> list[int]:
    """Parse the numbers that `spelled` prints."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def parser_of(name: str, text: str | None, steps: str, count: int) -> argparse.ArgumentParser:
    """Return a parser of the options of `run_seeds`; by default a seed has `count` steps, which are called `steps`."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.soak {name}", description=text)
    parser.add_argument("--seconds", type=float, default=600, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="the first seed; the next ones follow")
    parser.add_argument(f"--{steps}", type=int, default=count, help=f"{steps} of each seed", dest="steps")
    parser.add_argument(
        "--only", type=read_steps, help=f"only these {steps} of one seed, as a failure prints them"
    )
    parser.add_argument(
        "--shrink", type=float, default=60, help=f"seconds for finding fewer {steps} that fail"
    )
    return parser


def run_seeds(run: RunSeed, asked: argparse.Namespace) -> int:
    """Run seeds until the time is up, and return the last seed. If a seed fails, exit with a report (blocking)."""
    logging.disable()  # Recovery logs warnings after each kill.
    deadline, seed = time.monotonic() + asked.seconds, asked.seed
    while (failure := run(seed, asked.only or range(asked.steps))) is None:
        if asked.only or time.monotonic() > deadline:
            return seed
        seed += 1
    if not asked.only:
        failure = shrink(failure, lambda steps: run(seed, steps), seconds=asked.shrink)
    sys.exit(failure.report())


def shrink(failure: Failure, run: Callable[[Sequence[int]], Failure | None], *, seconds: float) -> Failure:
    """Leave out more and more steps while the seed still fails; return the failure with the fewest steps (blocking).

    If no step can be left out, return the given failure.
    """
    deadline = time.monotonic() + seconds
    size = max(1, len(failure.steps) // 2)
    while size and time.monotonic() < deadline:
        position, shorter = 0, False
        while position < len(failure.steps) and time.monotonic() < deadline:
            found = run([*failure.steps[:position], *failure.steps[position + size :]])
            if found is None:
                position += size
            else:
                failure, shorter = found, True
        if not shorter or size > 1:
            size //= 2
    return failure
