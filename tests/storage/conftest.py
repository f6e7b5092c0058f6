"""Fixtures for the tests of several folders."""

from __future__ import annotations

import pytest

from tests.doubles.engines import engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.replication import EmbeddedEngine


@pytest.fixture
def disk() -> SimulatedDisk:
    """An empty disk."""
    return SimulatedDisk()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(disk: SimulatedDisk, clock: ManualClock) -> EmbeddedEngine:
    """An engine over the empty disk."""
    return engine_on(disk, clock=clock)
