"""The results of a run: the figures of each round, their spread, ratios, and the verdicts on goals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum

from benchmarks.frame.question import Better, Goal, Unit


class Verdict(Enum):
    NO_GOAL = "no goal"
    REACHED = "reached"
    MISSED = "missed"
    BELOW_FLOOR = "below the floor"


@dataclass(frozen=True, slots=True)
class Figures:
    side: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def low(self) -> float:
        return min(self.rounds)

    @property
    def high(self) -> float:
        return max(self.rounds)


@dataclass(frozen=True, slots=True)
class GoalOutcome:
    goal: Goal
    better: Better
    ratios: tuple[float, ...]
    """Ratio of the two sides in each round; if the goal is not a ratio, the figures of its side."""
    best_ratio: float
    """Ratio of both sides in their best rounds. Other programs disturbed these rounds least."""

    @property
    def ratio(self) -> float:
        """Median of the ratios of all rounds, which hardly changes if the machine's speed drifts between rounds."""
        return statistics.median(self.ratios)

    def _is_worse(self, than: float) -> bool:
        return _is_worse(self.ratio, than, self.better)

    @property
    def is_below_floor(self) -> bool:
        """True if both the median and the best rounds are below the floor, so that a disturbed run does not fail."""
        floor = self.goal.floor
        return floor is not None and all(
            _is_worse(ratio, floor, self.better) for ratio in (self.ratio, self.best_ratio)
        )

    @property
    def verdict(self) -> Verdict:
        if self.is_below_floor:
            return Verdict.BELOW_FLOOR
        if self.goal.target is None:
            return Verdict.NO_GOAL
        return Verdict.MISSED if self._is_worse(self.goal.target) else Verdict.REACHED

    @property
    def missing_factor(self) -> float | None:
        """Factor by which the side must improve to reach the goal.

        None if the side has reached the goal, or if there is no goal.
        """
        if self.goal.target is None or not self._is_worse(self.goal.target):
            return None
        reached, wanted = self.ratio, self.goal.target
        return wanted / reached if self.better is Better.HIGHER else reached / wanted


def _is_worse(ratio: float, than: float, better: Better) -> bool:
    return ratio < than if better is Better.HIGHER else ratio > than


@dataclass(frozen=True, slots=True)
class CaseResult:
    name: str
    unit: Unit
    figures: tuple[Figures, ...]
    goals: tuple[Goal, ...]

    def of(self, side: str) -> Figures:
        return next(figures for figures in self.figures if figures.side == side)

    @property
    def outcomes(self) -> tuple[GoalOutcome, ...]:
        return tuple(self._outcome(goal) for goal in self.goals)

    def _outcome(self, goal: Goal) -> GoalOutcome:
        best = max if self.unit.better is Better.HIGHER else min
        rounds = self.of(goal.side).rounds
        if goal.of is None:
            return GoalOutcome(goal, self.unit.better, rounds, best(rounds))
        others = self.of(goal.of).rounds
        ratios = tuple(ours / other for ours, other in zip(rounds, others, strict=True))
        return GoalOutcome(goal, self.unit.better, ratios, best(rounds) / best(others))


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    name: str
    question: str
    logarithmic: bool
    cases: tuple[CaseResult, ...]
    seconds: float
    skipped: str | None = None
    """The reason if the benchmark did not run; None if it ran."""
    failed: str | None = None
    """The error that ended the benchmark, None if there was none. The results of earlier cases are kept."""

    @property
    def acceptable(self) -> bool:
        """True if there was no error, and no figure is below its floor."""
        verdicts = {outcome.verdict for case in self.cases for outcome in case.outcomes}
        return self.failed is None and Verdict.BELOW_FLOOR not in verdicts


@dataclass(frozen=True, slots=True)
class RunResult:
    machine: dict[str, str]
    """Facts about the machine, by name."""
    short: bool
    benchmarks: tuple[BenchmarkResult, ...]
