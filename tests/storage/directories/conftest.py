"""Fixtures of the tests of data directories."""

from __future__ import annotations

import pytest

from tests.doubles.several_disks import A, B, SeveralDisks
from tests.doubles.simulated_disk import SimulatedDisk


@pytest.fixture
def disks() -> SeveralDisks:
    return SeveralDisks({A: SimulatedDisk(), B: SimulatedDisk()})
