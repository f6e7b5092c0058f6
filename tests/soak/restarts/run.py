"""Runs a seed's lives (starts and ends of the engine), reports a failure, and looks for fewer lives that also fail."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.soak.crossings.run import spelled
from tests.soak.restarts.world import World


@dataclass
class Failed:
    """A failure, and the lives (starts and ends of the engine) that led to it."""

    seed: int
    lives: Sequence[int]
    log: Sequence[str]
    error: str
    segments: bool

    def report(self) -> str:
        """Return the log of the lives, the error, and the command that repeats the lives."""
        mode = "" if self.segments else " --small-files"
        again = f"again: python -m tests.soak restarts{mode} --seed {self.seed} --only {spelled(self.lives)}"
        return "\n".join([*self.log, self.error, again])


def run_lives(
    seed: int,
    lives: Iterable[int],
    *,
    counts: Counter[str] | None = None,
    log: list[str] | None = None,
    segments: bool = True,
) -> Failed | None:
    """Run a seed's lives in new directories; return the failure that ends them, or None (blocking).

    `log` gets lines for each life.
    """
    base = Path(tempfile.mkdtemp(prefix="topicfs-restarts-"))
    counts = Counter() if counts is None else counts
    log = [] if log is None else log
    done: list[int] = []
    try:
        world = World(base, seed, counts, segments=segments)
        world.log = log
        for life in lives:
            done.append(life)
            log.append(f"life {life}")
            world.live(Random(f"{seed}/{life}"))
            counts["lives"] += 1
        log.append("end")
        world.end()
        counts["saved"] += world.expected.saved
        counts["destroyed"] += world.expected.destroyed
    except Exception:  # noqa: BLE001 (whatever it is, it is the failure that is looked for)
        return Failed(seed, done, log, traceback.format_exc(), segments)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return None


def shrink(failure: Failed, *, seconds: float = 60, segments: bool = True) -> Failed:
    """Leave out more and more lives while the seed still fails; return the failure with the fewest lives (blocking).

    If no life can be left out, return the given failure.
    """
    deadline = time.monotonic() + seconds
    size = max(1, len(failure.lives) // 2)
    while size and time.monotonic() < deadline:
        position = 0
        while position < len(failure.lives) and time.monotonic() < deadline:
            fewer = [*failure.lives[:position], *failure.lives[position + size :]]
            found = run_lives(failure.seed, fewer, segments=segments)
            if found is None:
                position += size
            else:
                failure = found
        size //= 2
    return failure
