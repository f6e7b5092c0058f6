"""Runs the steps of a seed, reports a failure, and looks for fewer steps that also fail."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.doubles.mortal_disk import Killed
from tests.soak.crossings import appends, upkeep
from tests.soak.crossings.machine import Counts, Crossing, Interrupted
from tests.soak.crossings.settings import SWITCHES, Switches

ACTIONS: dict[Callable[[Crossing, Random], str], int] = {
    appends.append_plain: 20,
    appends.append_of_producer: 14,
    appends.append_in_transaction: 14,
    appends.end_transaction: 9,
    upkeep.create: 4,
    upkeep.delete: 1,
    upkeep.recreate: 1,
    upkeep.extend: 1,
    upkeep.alter: 8,
    upkeep.delete_records: 4,
    upkeep.maintain: 8,
    upkeep.keep_log_starts: 1,
    upkeep.flush: 4,
    upkeep.tick: 6,
    upkeep.jump: 2,
    upkeep.wait_for_removals: 1,
    upkeep.restart: 2,
    upkeep.kill: 2,
    upkeep.look_beside: 1,
    upkeep.open_image: 1,
    upkeep.reopen_partition: 1,
    upkeep.refuse: 1,
}
"""The steps, with relative frequencies."""
KILLED = 0.1
"""Share of the steps in which the engine is killed if the step changes the disk often enough."""
FARTHEST = 12.0
"""Mean number of changes of the disk before a kill."""


@dataclass
class Failure:
    """A failure, and the steps that led to the failure."""

    seed: int
    steps: Sequence[int]
    log: Sequence[str]
    error: str

    def report(self) -> str:
        """Return the steps, the error, and the command that repeats the steps."""
        return "\n".join(
            [
                *self.log,
                self.error,
                f"again: python -m tests.soak crossings --seed {self.seed} --only {spelled(self.steps)}",
            ]
        )


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


def run_seed(
    seed: int,
    steps: Iterable[int],
    *,
    switches: Switches = SWITCHES,
    deadline: float | None = None,
    counts: Counts | None = None,
    log: list[str] | None = None,
) -> Failure | None:
    """Run the steps of a seed in a new directory; return the failure that ends them, or None (blocking).

    `log` gets a line for each step.
    """
    base = Path(tempfile.mkdtemp(prefix="topicfs-crossings-"))
    log = [] if log is None else log
    done: list[int] = []
    try:
        crossing = Crossing(base, seed, switches)
        crossing.counts = counts or crossing.counts
        for step in steps:
            if deadline is not None and time.monotonic() > deadline:
                break
            done.append(step)
            take(crossing, seed, step, log)
        crossing.close()
    except Exception:  # noqa: BLE001 (whatever it is, it is the failure that is looked for)
        return Failure(seed, done, log, traceback.format_exc())
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return None


def take(crossing: Crossing, seed: int, step: int, log: list[str]) -> None:
    """Do one step. All its choices follow from the seed and the number of the step."""
    chance = Random(f"{seed}/{step}")
    action = chance.choices([*ACTIONS], [*ACTIONS.values()])[0]
    crossing.chance = crossing.disk.chance = chance
    crossing.counts.count(crossing.counts.steps, action.__name__)
    log.append(f"{step:6} {action.__name__}")
    if chance.random() < KILLED:
        crossing.disk.steps_left = int(chance.expovariate(1 / FARTHEST))
    try:
        log[-1] += f": {action(crossing, chance)}"
    except Killed as killed:
        log[-1] += f": killed at {killed}"
        crossing.recover()
    crossing.disk.steps_left = None
    crossing.interrupted = Interrupted()
    crossing.compare(chance)


def shrink(failure: Failure, *, switches: Switches = SWITCHES, seconds: float = 60) -> Failure:
    """Leave out more and more steps while the seed still fails; return the failure with the fewest steps (blocking).

    If no step can be left out, return the given failure.
    """
    deadline = time.monotonic() + seconds
    size = len(failure.steps) // 2
    while size and time.monotonic() < deadline:
        position, shorter = 0, False
        while position < len(failure.steps) and time.monotonic() < deadline:
            fewer = [*failure.steps[:position], *failure.steps[position + size :]]
            found = run_seed(failure.seed, fewer, switches=switches)
            if found is None:
                position += size
            else:
                failure, shorter = found, True
        if not shorter or size > 1:
            size //= 2
    return failure
