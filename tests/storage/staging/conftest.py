"""Fixtures of the tests of staged writes."""

from __future__ import annotations

import pytest

from tests.doubles.simulated_disk import SimulatedDisk
from tests.doubles.staged_writes import populated
from topicfs.replication import EmbeddedEngine


@pytest.fixture
def engine(disk: SimulatedDisk) -> EmbeddedEngine:
    """An engine that has the topics of the staged writes, but no records."""
    return populated(disk)
