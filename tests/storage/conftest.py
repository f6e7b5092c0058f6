"""Fixtures for the tests of several folders."""

from __future__ import annotations

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    """An empty disk."""
    return SimulatedDisk()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
