"""The parts of a benchmark: cases, each with sides that are measured alternately and goals for their ratios."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias, TypeVar

T = TypeVar("T")


class SkippedError(Exception):
    """The benchmark cannot run here; the message has the reason and the remedy."""


class WrongResultError(Exception):
    """A side did not do the measured work, so that its figure would be meaningless."""


class Better(Enum):
    """Whether higher or lower figures are better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    better: Better


OURS = "topicfs"
"""Name of topicfs as a side, in all benchmarks."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the programs that a case compares."""

    name: str
    measure: Callable[[], float]
    """Does the work of one round and returns its figure in the case's unit. Raises WrongResultError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A target for a side, and a floor below which the run fails."""

    side: str = OURS
    of: str | None = None
    """The side to compare with; None: the goal is a figure in the case's unit, not a ratio."""
    target: float | None = None
    """Least ratio or figure if higher is better, else the greatest; None: the ratio is only reported."""
    floor: float | None = None
    """A ratio worse than this, which means several times slower, fails the run."""

    def __post_init__(self) -> None:
        """Check that only a ratio has a floor: figures that depend on the machine must not fail a run."""
        assert self.of is not None or self.floor is None, "a floor is for a ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A figure that every side has."""

    name: str
    unit: Unit
    sides: tuple[Side, ...]
    goals: tuple[Goal, ...] = ()
    max_rounds: int | None = None
    """Limit of the rounds, for slow work."""
    warm_up: bool = True
    """True to run each side once without measuring it, before the first round."""

    def __post_init__(self) -> None:
        """Check that the goals name existing sides."""
        names = {side.name for side in self.sides}
        assert len(names) == len(self.sides), self.name
        assert {goal.side for goal in self.goals} <= names, self.name
        assert {goal.of for goal in self.goals} <= {*names, None}, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions under which a benchmark runs."""

    short: bool
    """True for small sizes, so that all benchmarks take a minute and a half on a build machine."""
    directory: Path
    """An empty directory on the disk, which is removed afterwards."""

    def choose(self, *, full: T, short: T) -> T:
        return short if self.short else full


Cases: TypeAlias = Generator[Case, None, None]
"""Yields each case after it has set up what the case needs; closing the generator removes the setup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    name: str
    question: str
    cases: Callable[[Conditions], Cases]
    """Raises SkippedError if the benchmark cannot run here."""
    logarithmic: bool = False
    """True for a logarithmic plot, if the sides differ by orders of magnitude."""
