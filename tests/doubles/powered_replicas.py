"""Replicas on simulated disks of one machine. Its power can fail before any change to any of the disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.doubles.mortal_disk import End, Killed
from tests.doubles.replicated import Replicated
from tests.doubles.several_disks import SeveralDisks
from tests.doubles.simulated_disk import SimulatedDisk


class Supply:
    """The power supply of several disks. It fails before a chosen change to any of the disks."""

    def __init__(self) -> None:
        self.steps_left: int | None = None
        """The number of changes until the power fails, or None if the power never fails."""

    def use(self, operation: str, path: Path) -> None:
        """Count one change. Raises Killed if no step is left."""
        if self.steps_left is not None:
            if not self.steps_left:
                raise Killed(f"{operation} {path}")
            self.steps_left -= 1


class PoweredDisk(SimulatedDisk):
    """A disk that shares its power supply with other disks."""

    def __init__(self, supply: Supply, *, seed: int) -> None:
        super().__init__(seed=seed)
        self.supply = supply

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        if changes:
            self.supply.use(operation, path)
        super().happens(operation, path, changes=changes)


class PoweredReplicas(Replicated):
    """Replicas whose disks share one power supply."""

    def make_disks(self, seed: int = 0) -> None:
        self.supply = Supply()
        self.disks = SeveralDisks(
            {root: PoweredDisk(self.supply, seed=seed + n) for n, root in enumerate(self.roots)}
        )
        for disk in self.disks.disks.values():
            disk.sync_directory(Path("/"))

    def dies(self, run: Callable[[], object], steps: int) -> bool:
        """Call `run`; the power fails after `steps` changes. Return False if `run` ended before."""
        self.supply.steps_left = steps
        try:
            run()
        except Killed:
            return True
        return False

    def lose_power(self, end: End = End.POWER_LOSS) -> None:
        """Cut the power: each disk keeps only the data that survives `end`."""
        self.supply.steps_left = None
        for disk in self.disks.disks.values():
            end.of(disk)
