"""The short form of the mirror's soak test."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.broker.broker import running_broker
from testing.broker.libraries import Java
from tests.soak.mirror import USUAL, kill_mirrors


@pytest.mark.java
def test_a_mirror_that_is_killed_continues(tmp_path: Path, java: Java) -> None:
    """A killed mirror continues despite transactions, compaction, retention, deletions and recreated topics."""
    with running_broker(tmp_path / "node", java) as broker:
        done = kill_mirrors(tmp_path, [broker], kills=2, seed=1)
    assert set(done) >= USUAL
