"""A simulated disk whose process is killed before a chosen change, so that tests can check what each kill leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from tests.doubles.simulated_disk import SimulatedDisk


class Killed(BaseException):
    """Raised when the simulated process is killed: none of its code runs after this, not even cleanup."""


class End(Enum):
    """An event that ends a process. The kind of event determines how much of the unsynced data survives."""

    KILL = "kill"
    """All unsynced data survives, because the machine keeps running."""
    POWER_LOSS = "power loss"
    """A random share of the unsynced data survives."""
    POWER_LOSS_KEEPING_NOTHING = "power loss that keeps nothing"

    def of(self, disk: SimulatedDisk) -> None:
        """Change the disk's content to the content that is left after this event."""
        disk.crash(keep=_SHARES[self])

    def __str__(self) -> str:
        return self.value


_SHARES = {End.KILL: 1.0, End.POWER_LOSS: None, End.POWER_LOSS_KEEPING_NOTHING: 0.0}


class MortalDisk(SimulatedDisk):
    """A simulated disk. Its process is killed at the change with the number `last_step` + 1."""

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


def every_step(most: int = 500) -> Iterator[int]:
    """Yield the number of changes before each kill. The test leaves the loop when a run has ended before its kill."""
    yield from range(most)
    raise AssertionError(f"not complete after {most} steps")


def dies(disk: MortalDisk, run: Callable[[], object], steps: int) -> bool:
    """Call `run`, and kill the process after `steps` changes. Return False if `run` ended before the kill."""
    try:
        with disk.dying_after(steps):
            run()
    except Killed:
        return True
    return False
