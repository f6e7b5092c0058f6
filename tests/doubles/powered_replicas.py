"""Replicas on simulated disks of one machine. Its power can fail before any change to any of the disks."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.mortal_disk import Killed
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

    def lose_power(self, keep: float | None = None) -> None:
        """Keep on each disk the synced data and about the share `keep` of the unsynced data.

        By default the share is random. With `keep` 1 all data survives, as after a kill.
        """
        self.supply.steps_left = None
        for disk in self.disks.disks.values():
            disk.crash(keep=keep)
