"""Positions and lags of groups."""

from __future__ import annotations

import pytest

from tests.doubles.memory_partition import MemoryPartition
from topicfs.coordination.membership import CommittedPosition
from topicfs.fusefs.groups.positions import lag_of
from topicfs.storage.model import Offset


@pytest.mark.parametrize(("position", "lag"), [(None, 5), (7, 3), (10, 0), (12, 0)])
def test_a_lag_is_not_negative(position: int | None, lag: int):
    """A position beyond the known end has lag 0, because the end of a cluster's partition is known with a delay."""
    partition = MemoryPartition(base_offset=5)
    partition.log_end_offset = 10
    committed = None if position is None else CommittedPosition(Offset(position))
    assert lag == lag_of(partition, committed)
