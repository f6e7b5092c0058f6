"""The short form of starting replicas with some of their directories again and again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.soak.restarts.run import run_lives

SEEDS = (1, 3, 5, 7, 8)
LIVES = 6


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recovery warns of what each kill left."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_replicas_that_start_with_some_of_their_directories_lose_nothing() -> None:
    """A record is on a disk, or saved, or its loss was agreed to; refusals name the command that resolves them."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        failure = run_lives(seed, range(LIVES), counts=counts, segments=False)
        assert failure is None, failure.report()
    assert len(SEEDS) * LIVES == counts["lives"]
    assert counts["kills"]
    assert counts["refused: MissingReplicasError"]
