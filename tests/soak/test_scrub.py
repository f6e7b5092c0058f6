"""The short form of the scrub's soak test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.scrub import Sizes, run


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_of_one_replica_are_healed(tmp_path: Path, seed: int) -> None:
    """Reads stay right despite flipped bits; after the scrub a check finds nothing, and the replicas are equal."""
    done = run(tmp_path, Sizes(log_bytes=3 << 20, segment_bytes=1 << 20, flips=30), seed=seed)
    assert [] == done.left
    assert [] == done.unequal
    assert 0 == done.counts.damaged
    assert done.counts.batches_healed > 10
