"""Tests that every request about hostile batches stays within its limits, with a few seeds of the ten-minute run."""

from __future__ import annotations

import pytest

from tests.fuzz.mutator import Mutator
from tests.fuzz.requests import run_rounds

SEEDS = (11, 12, 40)
"""Seeds whose rounds have bombs; repeat one with `python -m tests.soak fuzz requests --seed N --seconds 1`."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_is_bounded(seed):
    """A request costs at most 1 second of CPU time and 300 MB, whatever a batch declares; FileError is allowed."""
    tally = run_rounds([seed])
    if tally.exceeding:  # Only a request that is really slow exceeds the limit twice.
        tally = run_rounds([seed])
    assert () == tally.exceeding
    assert tally.requests > 100


@pytest.mark.fuse
def test_every_request_at_a_real_mount_is_bounded():
    """Requests through a real mount stay within the limits for the daemon's CPU time and memory."""
    tally = run_rounds([3], on_a_mount=True)
    assert () == tally.exceeding
    assert tally.requests > 100


def test_a_seed_makes_the_same_batches_again():
    """A seed makes the same batches each time, so that a finding can be reproduced."""
    assert Mutator(5).log() == Mutator(5).log()
    assert Mutator(5).log() != Mutator(6).log()
