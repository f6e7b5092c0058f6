"""The short forms of the soak tests that kill mounts over replicas and cut the power."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.power import run_losses
from tests.soak.replicas import run_kills


@pytest.mark.fuse
@pytest.mark.slow
def test_mounts_over_replicas_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    """Every acknowledged line is stored once, followers got only stored lines, and replicas are equal."""
    kills = run_kills(tmp_path, 6, seed=3)
    assert 6 <= kills.killed.total()
    assert kills.answered
    assert kills.followed


def test_replicas_whose_machine_loses_power_keep_what_was_flushed() -> None:
    """Flushed lines survive a power failure at any change, even while the engine is opened; replicas become equal."""
    losses = run_losses(50, seed=1)
    assert losses.working
    assert losses.opening
    assert losses.flushed
