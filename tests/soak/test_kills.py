"""The short form of killing a directory's owner repeatedly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.kills import run_kills


@pytest.mark.slow
def test_owners_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    """After kills, every acknowledged record is stored once, indexes are valid, and no recent record was removed."""
    kills = run_kills(tmp_path, 6, seed=7)
    assert 6 <= kills.killed.total()
    assert kills.answered
