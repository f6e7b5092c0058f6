"""A simulated disk whose user dies at a chosen step, to see what is left after each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from tests.doubles.simulated_disk import SimulatedDisk


class Killed(BaseException):
    """The process is gone: nothing of it runs on, no cleaning up either."""


class End(Enum):
    """What ends a process, and how much of what was not synced is left."""

    KILL = "kill"
    """All of it: the machine goes on."""
    POWER_LOSS = "power loss"
    """A share of it, another one each time."""
    POWER_LOSS_KEEPING_NOTHING = "power loss that keeps nothing"

    def of(self, disk: SimulatedDisk) -> None:
        """Leave the disk as it is found afterwards."""
        disk.crash(keep=_SHARES[self])

    def __str__(self) -> str:
        return self.value


_SHARES = {End.KILL: 1.0, End.POWER_LOSS: None, End.POWER_LOSS_KEEPING_NOTHING: 0.0}


class MortalDisk(SimulatedDisk):
    """A disk whose user dies before the change number `last_step` + 1."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.last_step: int | None = None
        self.steps = 0

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        if changes and self.last_step is not None:
            if self.steps >= self.last_step:
                raise Killed(f"{operation} {path}")
            self.steps += 1
        super().happens(operation, path, changes=changes)

    @contextmanager
    def dying_after(self, steps: int) -> Iterator[None]:
        self.last_step, self.steps = steps, 0
        try:
            yield
        finally:
            self.last_step = None


def dies(disk: MortalDisk, run: Callable[[], None], steps: int) -> bool:
    """Let `run` die after so many changes; False where it came to its end before."""
    try:
        with disk.dying_after(steps):
            run()
    except Killed:
        return True
    return False
