"""The parts of a benchmark: cases, each with sides that are measured in turn and goals for their ratios."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias, TypeVar

T = TypeVar("T")


class SkippedError(Exception):
    """This benchmark cannot run here; the message says why, and what it would take."""


class WrongResultError(Exception):
    """A side did not do what it was measured for: its figure would be of something else."""


class Better(Enum):
    """The direction in which a figure should go."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    better: Better


OURS = "topicfs"
"""The name of our side, everywhere."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that are compared."""

    name: str
    measure: Callable[[], float]
    """Does the work of one round and returns its figure in the case's unit. Raises WrongResultError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The target that a side is to reach, and the floor that it must not fall below."""

    side: str = OURS
    of: str | None = None
    """The side it is held against; None: the goal is a figure in the case's unit, not a ratio."""
    target: float | None = None
    """At least this where higher is better, else at most; None: the ratio is only reported."""
    floor: float | None = None
    """Beyond this something became several times slower: the run fails. Only for ratios, with a wide margin."""

    def __post_init__(self) -> None:
        """A figure that depends on the machine must not fail a run."""
        assert self.of is not None or self.floor is None, "a floor is for a ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One figure, for every side."""

    name: str
    unit: Unit
    sides: tuple[Side, ...]
    goals: tuple[Goal, ...] = ()
    max_rounds: int | None = None
    """For what takes long."""
    warm_up: bool = True
    """True if each side runs once before, unmeasured."""

    def __post_init__(self) -> None:
        """Check that goals name sides there are."""
        names = {side.name for side in self.sides}
        assert len(names) == len(self.sides), self.name
        assert {goal.side for goal in self.goals} <= names, self.name
        assert {goal.of for goal in self.goals} <= {*names, None}, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions under which a benchmark runs."""

    short: bool
    """Small sizes: for a build machine, where all of them together take a minute and a half."""
    directory: Path
    """An empty directory on the disk, removed afterwards."""

    def choose(self, *, full: T, short: T) -> T:
        return short if self.short else full


Cases: TypeAlias = Generator[Case, None, None]
"""Sets up what a case needs before it yields it; what it set up ends with the generator, run to its end or closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    name: str
    question: str
    cases: Callable[[Conditions], Cases]
    """Raises SkippedError where it cannot run."""
    logarithmic: bool = False
    """True for a logarithmic plot: where sides differ by orders of magnitude."""
