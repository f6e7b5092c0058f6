"""The parts of a benchmark: cases, whose sides are measured alternately, with goals for the ratios of the sides."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias, TypeVar

T = TypeVar("T")


class SkippedError(Exception):
    """The benchmark cannot run here. The message has the reason and the remedy."""


class WrongResultError(Exception):
    """A side did not do the measured work, so its figure would have no meaning."""


class Better(Enum):
    """States whether higher or lower figures are better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    better: Better


OURS = "topicfs"
"""Name of topicfs as a side in all benchmarks."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the programs that are compared in a case."""

    name: str
    measure: Callable[[], float]
    """Does the work of one round and returns its figure in the case's unit. Raises WrongResultError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A target for a side, and a floor below which the run fails."""

    side: str = OURS
    of: str | None = None
    """The side with which to compare. None: the goal is a figure in the case's unit, not a ratio."""
    target: float | None = None
    """Ratio or figure to reach: a minimum if higher is better, else a maximum. None: the ratio is only reported."""
    floor: float | None = None
    """If the ratio is worse than this value, the run fails, because the side has become several times slower."""

    def __post_init__(self) -> None:
        """Check that only a ratio has a floor: figures that depend on the machine must not make a run fail."""
        assert self.of is not None or self.floor is None, "only a ratio can have a floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A quantity that is measured for every side."""

    name: str
    unit: Unit
    sides: tuple[Side, ...]
    goals: tuple[Goal, ...] = ()
    max_rounds: int | None = None
    """Largest number of rounds, for slow work. None if only the number of rounds of the run applies."""
    warm_up: bool = True
    """True if each side runs once without being measured before the first round."""

    def __post_init__(self) -> None:
        """Check that the goals name sides of this case."""
        names = {side.name for side in self.sides}
        assert len(names) == len(self.sides), self.name
        assert {goal.side for goal in self.goals} <= names, self.name
        assert {goal.of for goal in self.goals} <= {*names, None}, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions under which a benchmark runs."""

    short: bool
    """True for small sizes, with which all benchmarks together take 2 or 3 minutes on a build machine."""
    directory: Path
    """An empty directory on the disk; it is removed after the benchmark."""

    def choose(self, *, full: T, short: T) -> T:
        return short if self.short else full


Cases: TypeAlias = Generator[Case, None, None]
"""Yields each case after setting up what the case needs; closing the generator removes the setup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    name: str
    question: str
    cases: Callable[[Conditions], Cases]
    """Yields the cases. Raises SkippedError if the benchmark cannot run here."""
    logarithmic: bool = False
    """True for a logarithmic plot, because the sides differ by orders of magnitude."""
