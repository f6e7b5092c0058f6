"""The short form of the soak test that kills the processes of a query from topic to topic."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.copies import FORMS, run_scene


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.fuse
@pytest.mark.timeout(900)  # The test starts two Spark sessions, possibly on a busy machine.
def test_a_query_from_topic_to_topic_copies_each_row_once(tmp_path: Path) -> None:
    """Each row of the source is appended to the target once, whichever process is killed, even during a compaction."""
    counts = run_scene(tmp_path / "scene", FORMS[0], 3, random.Random(2)).counts
    assert set() == {name for name in ("looks", "micro-batches", "rows") if not counts[name]}
