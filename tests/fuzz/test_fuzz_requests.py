"""Every request about hostile batches stays within its bounds: a few fixed seeds of what runs for ten minutes by hand."""

from __future__ import annotations

import pytest

from tests.fuzz.mutator import Mutator
from tests.fuzz.requests import run_rounds

SEEDS = (11, 12, 40)
"""Rounds with bombs among them; `python -m tests.soak fuzz requests --seed N --seconds 1` is one of them again."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", SEEDS)
def test_every_request_is_bounded(seed):
    """At most a second of the processor and 300 MB, whatever a batch declares or inflates to; nothing but FileError is raised."""
    tally = run_rounds([seed])
    if tally.exceeding:  # What is slow is slow again; a busy machine charges a moment's work to whoever runs.
        tally = run_rounds([seed])
    assert () == tally.exceeding
    assert tally.requests > 100


@pytest.mark.fuse
def test_every_request_at_a_real_mount_is_bounded():
    """The daemon's time and memory, while a program asks."""
    tally = run_rounds([3], on_a_mount=True)
    assert () == tally.exceeding
    assert tally.requests > 100


def test_a_seed_makes_the_same_batches_again():
    """So that what is found can be looked at."""
    assert Mutator(5).log() == Mutator(5).log()
    assert Mutator(5).log() != Mutator(6).log()
