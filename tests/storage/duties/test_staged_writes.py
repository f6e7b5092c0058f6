"""Tests of the duty that appends staged writes: when it lists the data directory."""

from __future__ import annotations

from tests.doubles.engines import DATA, QUIET
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.staged_writes import BATCH, EXPECTED, populated, submit, values
from topicfs.storage.manager import Machine, open_engine


def test_a_directory_without_writes_is_not_listed_again_and_again():
    """The directory is listed only if it has changed, because a listing may have 100,000 names.

    If the directory's modification time is at least a second old, the directory counts as unchanged until this time
    changes.
    """
    disk, clock = SimulatedDisk(), ManualClock()
    populated(disk).close()
    engine = open_engine(DATA, config=QUIET, machine=Machine(files=disk, clock=clock))

    def listings(times: int) -> int:
        disk.calls.clear()
        for _ in range(times):
            clock.advance(500)
            engine.maintenance(clock())
        return disk.calls.count(("list_directory", str(DATA)))

    assert 3 == listings(6)
    assert 0 == listings(6)
    submit(disk, BATCH)
    assert 1 <= listings(1)
    assert EXPECTED == values(engine)
    listings(20)
    assert 0 == listings(6)
