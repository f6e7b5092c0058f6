"""Tests that a change of topics is made in all data directories or in none, even if the process is killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest

from tests.doubles.engines import state_of
from tests.doubles.mortal_disk import End, Killed, every_step
from tests.doubles.several_disks import A, B, SeveralDisks, filled, opened, states, topic_files
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.manager import LogManager

pytestmark = pytest.mark.slow


class MortalDisks(SeveralDisks):
    """Disks of a process that is killed before change `last_step` + 1, counted over all disks."""

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.steps = 0
        super().__init__({A: _Mortal(self), B: _Mortal(self)})


class _Mortal(SimulatedDisk):
    def __init__(self, together: MortalDisks) -> None:
        super().__init__()
        self.together = together

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        together = self.together
        if changes and together.last_step is not None:
            if together.steps >= together.last_step:
                raise Killed(f"{operation} {path}")
            together.steps += 1
        super().happens(operation, path, changes=changes)


CHANGES: dict[str, Callable[[LogManager], object]] = {
    "create": lambda engine: engine.create_topic("fresh", partitions=3, overrides={"segment.ms": "7"}),
    "extend": lambda engine: engine.add_partitions("t", total=5),
    "delete": lambda engine: engine.delete_topic("t"),
    "alter": lambda engine: engine.alter_config("t", {"segment.ms": "9"}),
}


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_kill_leaves_the_old_state_or_the_new(change: Callable[[LogManager], object], *, end: End) -> None:
    """After a kill at any step on any disk, both directories have the old state, or both have the new state."""
    disks = MortalDisks()
    filled(disks).close()
    start = deepcopy(disks)
    engine = opened(disks)
    allowed = [state_of(engine)]
    change(engine)
    allowed.append(state_of(engine))
    seen = []
    for steps in every_step():
        disks = deepcopy(start)
        for seed, disk in enumerate(disks.disks.values()):
            disk._random.seed(steps * 2 + seed)
        engine = opened(disks)
        disks.last_step, disks.steps = steps, 0
        completed = False
        with suppress(Killed):
            change(engine)
            completed = True
        disks.last_step = None
        for disk in disks.disks.values():
            end.of(disk)
        again = opened(disks)
        state = state_of(again)
        assert state in allowed, f"after {steps} steps"
        assert topic_files(disks)[0] == topic_files(disks)[1]
        assert "offline" not in states(again).values()
        seen.append(allowed.index(state))
        if completed:
            break
    assert seen == sorted(seen)
    assert {0, 1} == set(seen)
