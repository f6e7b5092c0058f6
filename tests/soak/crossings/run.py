"""Runs the steps of a seed."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from tests.doubles.mortal_disk import Killed
from tests.soak.crossings import appends, upkeep
from tests.soak.crossings.machine import Counts, Crossing, Interrupted, NothingToDoError
from tests.soak.seeds import Failure

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


def run_seed(
    seed: int,
    steps: Iterable[int],
    *,
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
        crossing = Crossing(base, seed)
        crossing.counts = counts or crossing.counts
        for step in steps:
            done.append(step)
            take(crossing, seed, step, log)
        crossing.close()
    except Exception:  # noqa: BLE001 (whatever it is, it is the failure that is looked for)
        return Failure(f"crossings --seed {seed}", done, log, traceback.format_exc())
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return None


def take(crossing: Crossing, seed: int, step: int, log: list[str]) -> None:
    """Do one step. All its choices follow from the seed and the number of the step."""
    chance = Random(f"{seed}/{step}")
    action = chance.choices([*ACTIONS], [*ACTIONS.values()])[0]
    crossing.chance = crossing.disk.chance = chance
    crossing.counts.steps[action.__name__] += 1
    log.append(f"{step:6} {action.__name__}")
    if chance.random() < KILLED:
        crossing.disk.steps_left = int(chance.expovariate(1 / FARTHEST))
    try:
        log[-1] += f": {action(crossing, chance)}"
    except NothingToDoError as nothing:
        log[-1] += f": {nothing}"
    except Killed as killed:
        log[-1] += f": killed at {killed}"
        crossing.recover()
    crossing.disk.steps_left = None
    crossing.interrupted = Interrupted()
    crossing.compare(chance)
