"""The short form of the soak test that kills workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.work import kill_workers


@pytest.mark.fuse
def test_workers_that_are_killed_leave_nothing(tmp_path: Path) -> None:
    """Each record is done by one command; a second command does it only if the first command's worker was killed."""
    done = kill_workers(tmp_path, records=16, seconds=1, workers=4, jobs=2, seed=1)
    assert 16 == done["records"]
    assert done["kills"] >= 1
