"""Tests of comparing the histories of replica sets."""

from __future__ import annotations

import pytest

from topicfs.replication.replicas.rules.history import (
    MAX_RUNS,
    ReplicaRun,
    Runs,
    completed,
    extended,
    includes,
)
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.model import Timestamp

ONE, TWO, THREE = map(ReplicaId, (1, 2, 3))


def history(*runs: str) -> Runs:
    """Return runs from texts such as `a12`: run a with the directories 1 and 2."""
    return tuple(
        ReplicaRun(run[0], Timestamp(0), tuple(ReplicaId(int(one)) for one in run[1:])) for run in runs
    )


def names(runs: Runs) -> str:
    return "".join(run.id for run in runs)


@pytest.mark.parametrize(
    ("newer", "older", "expected"),
    [
        ((), (), True),
        (("a1",), (), True),
        ((), ("a1",), False),
        (("a1", "b1"), ("a1",), True),
        (("a1", "b1"), ("a1", "b1"), True),
        (("a1",), ("a1", "b1"), False),
        (("a1", "b1"), ("a1", "c1"), False),
        (("c1", "d1"), ("a1", "b1", "c1"), True),
        (("c1", "d1"), ("a1", "b1"), False),
    ],
)
def test_a_newer_history_includes_older_ones(newer: tuple[str, ...], older: tuple[str, ...], expected: bool):
    """A newer history includes an older history if both share a run.

    The oldest runs may be missing in the newer history.
    """
    assert expected == includes(history(*newer), history(*older))


def test_the_oldest_runs_are_dropped():
    """A history keeps at most a thousand runs."""
    runs: Runs = ()
    for number in range(MAX_RUNS + 5):
        runs = extended(runs, ReplicaRun(str(number), Timestamp(0), (ONE,)))
    assert (MAX_RUNS, "5", str(MAX_RUNS + 4)) == (len(runs), runs[0].id, runs[-1].id)


@pytest.mark.parametrize(
    ("runs", "others", "expected"),
    [
        (("a12", "b12"), {TWO: ("a12",)}, "a"),
        (("a12", "b12"), {TWO: ("a12", "c2")}, "a"),
        (("a12", "b12", "c12"), {TWO: ("a12",)}, "a"),
        (("a12", "b12", "c1"), {TWO: ("a12",)}, "abc"),
        (("a12", "b12"), {TWO: ("a12", "b12")}, "ab"),
        (("a12", "b12"), {}, "ab"),
        (("a123", "b123"), {TWO: ("a123", "b123"), THREE: ("a123",)}, "a"),
        ((), {TWO: ("a12",)}, ""),
        (("a12",), {TWO: ()}, ""),
        (("a12",), {TWO: ("c2",)}, "a"),
        (("a123", "b23"), {THREE: ("a123", "c1", "d13")}, "ab"),
    ],
)
def test_a_run_that_never_began_does_not_count(
    runs: tuple[str, ...], others: dict[ReplicaId, tuple[str, ...]], expected: str
):
    """A run does not count if one of its directories has not recorded it: nothing was appended in such a run.

    A directory that lost its history, or was given another history, may have forgotten the run.
    """
    theirs = {one: history(*known) for one, known in others.items()}
    assert expected == names(completed(history(*runs), theirs))
