"""The history of a set of replica directories (the runs in which it was written), and the comparison of histories.

    /a   r1 r2 r3          an older copy of /b: its last run is in the history of /b
    /b   r1 r2 r3 r4
    /c   r1 r2 r5          a fork: /b and /c were written independently since r2

A *run* is a period in which the same directories are written. Its id is random, and all its directories store the id
before anything is appended. So if a directory's last run is in the history of another directory, the latter knows
every change in that run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.model import Timestamp

MAX_RUNS = 1000
MAX_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class ReplicaRun(NamedTuple):
    """A period in which the same directories are written."""

    id: str
    began_ms: Timestamp
    directories: tuple[ReplicaId, ...]


Runs = tuple[ReplicaRun, ...]


def extended(runs: Runs, run: ReplicaRun) -> Runs:
    return (*runs, run)[-MAX_RUNS:]


def includes(newer: Runs, older: Runs) -> bool:
    """Return whether `newer` equals or continues `older`. Every history continues an empty history."""
    return not older or older[-1].id in {run.id for run in newer}


def completed(runs: Runs, others: Mapping[ReplicaId, Runs]) -> Runs:
    """Return a history, without its last runs if these never began.

    A run never began if one of its directories is in `others` and does not have the run.
    """
    ours = {run.id for run in runs}
    known = {}
    for one, theirs in others.items():
        common = max((length for length, run in enumerate(theirs, 1) if run.id in ours), default=0)
        if not theirs or (common and all(one in run.directories for run in theirs[common : common + 1])):
            known[one] = {run.id for run in theirs}
    while runs and any(runs[-1].id not in known[one] for one in runs[-1].directories if one in known):
        runs = runs[:-1]
    return runs
