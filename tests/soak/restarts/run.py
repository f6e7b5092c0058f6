"""Runs a seed's lives: starts and ends of the engine."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

from tests.soak.restarts.world import World
from tests.soak.seeds import Failure


def run_lives(
    seed: int, lives: Iterable[int], *, segments: bool, counts: Counter[str] | None = None
) -> Failure | None:
    """Run a seed's lives in new directories; return the failure that ends them, or None (blocking)."""
    base = Path(tempfile.mkdtemp(prefix="topicfs-restarts-"))
    counts = Counter() if counts is None else counts
    log: list[str] = []
    done: list[int] = []
    try:
        world = World(base, seed, counts, log, segments=segments)
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
        command = f"restarts{'' if segments else ' --small-files'} --seed {seed}"
        return Failure(command, done, log, traceback.format_exc())
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return None
