"""Tests that each benchmark's floor is near its measured figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[2] / "docs" / "performance" / "figures.json"
GOALS = [
    pytest.param(
        goal["reached"], goal["floor"], case["better"], id=f"{one['name']}: {case['name']} of {goal['of']}"
    )
    for one in json.loads(FIGURES.read_text())["benchmarks"]
    for case in one["cases"]
    for goal in case["goals"]
    if goal["floor"] is not None
]
FARTHEST = 4


def test_there_are_floors():
    """The figures in the page include floors of every kind."""
    assert len(GOALS) > 30


@pytest.mark.parametrize(("reached", "floor", "better"), GOALS)
def test_a_floor_is_within_four_times_of_what_was_measured(reached, floor, better):
    """A floor is within a factor of four of its figure, so that work four times slower fails."""
    margin = reached / floor if better == "higher" else floor / reached
    assert 1 < margin <= FARTHEST
