"""Tests that a real broker reads the original records from replicas that were damaged and healed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from testing.broker.libraries import Java
from tests.soak.broker_takeover import read_by_broker
from tests.soak.scrub import Sizes, flip, open_both, scrubbed, write

pytestmark = pytest.mark.java

SIZES = Sizes(log_bytes=2 << 20, segment_bytes=1 << 20, flips=25)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_broker_reads_what_was_healed(java: Java, tmp_path: Path, name: str) -> None:
    """A broker reads the original records from the healed replica and from the undamaged replica."""
    engine = open_both(tmp_path, SIZES)
    try:
        records = write(engine, SIZES)
        assert flip(engine, 1, SIZES, Random(5)) > 0
        counts, left = scrubbed(engine)
    finally:
        engine.close()
    assert ([], True) == (left, counts.batches_healed > 10)
    assert records == read_by_broker(tmp_path / name, tmp_path / "node", java, records)
