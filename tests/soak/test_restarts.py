"""The short form of the soak test that restarts replicas without some of their directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.soak.restarts.run import run_lives

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = (1, 3, 5, 7, 8)
LIVES = 6


@pytest.mark.parametrize(
    ("seed", "lives", "segments"),
    [
        pytest.param(100019, (0, 2, 3, 4, 5), True, id="a gap that a copy has from its leader"),
        pytest.param(110006, (1, 2, 4, 5, 6), False, id="a directory alone that knows of no other"),
        pytest.param(310115, range(4), True, id="a gap of a leader that is offline"),
        pytest.param(320059, (2, 3), False, id="a partition that stays damaged in a directory that serves"),
        pytest.param(340210, (4, 5), False, id="two directories that know of no other"),
        pytest.param(500232, (6, 9, 11), True, id="a number that two new disks got"),
        pytest.param(600098, (3, 4, 5), False, id="a disk that is thrown away in a start"),
        pytest.param(500173, (3, 4, 5), True, id="a fork, and empty disks in the places of the others"),
        pytest.param(500426, (0, 3, 4, 5, 6, 7), True, id="a dropped segment, and a lost one before it"),
        pytest.param(330006, (1, 3, 4), True, id="a new disk that a killed start began to fill"),
        pytest.param(
            910451, (1, 3, 4, 5, 9, 10), True, id="a lost start that a copy with damaged epochs forgot"
        ),
        pytest.param(910451, range(12), True, id="a lost start that the only copy forgot"),
        pytest.param(910452, (0, 2, 3, 7, 8, 10), True, id="a new disk alone that got one of two partitions"),
        pytest.param(70251, range(12), True, id="a fork of two damaged directories"),
        pytest.param(
            940220, (1, *range(3, 8), 9, 10), True, id="a gap of the leader, and a copy that begins in it"
        ),
        pytest.param(
            1210012, (2, 5, 6, 7, 9, 10, 11), True, id="a fork, and a new disk that a killed start began"
        ),
        pytest.param(
            1240277,
            (0, *range(2, 6), 10),
            True,
            id="a lost start, and a disk that was only begun and then elected",
        ),
    ],
)
def test_sequences_that_failed_once_lose_nothing(seed: int, lives: Sequence[int], segments: bool) -> None:
    """Sequences of starts and kills that once failed in a long run lose no records now."""
    failure = run_lives(seed, lives, segments=segments)
    assert failure is None, failure.report()


@pytest.mark.slow
def test_replicas_that_start_with_some_of_their_directories_lose_nothing() -> None:
    """Each record is on a disk, was saved, or was given up by a command; a refusal names the command that helps."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        failure = run_lives(seed, range(LIVES), counts=counts, segments=False)
        assert failure is None, failure.report()
    assert len(SEEDS) * LIVES == counts["lives"]
    assert counts["kills"]
    assert counts["refused: MissingReplicasError"]
