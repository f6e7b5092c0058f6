"""Several figures of the same rounds: a case measures, later ones look at the same results again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Looks(Generic[T]):
    """What a side's rounds gave. All of its cases run as many rounds, and the one that measures comes first."""

    def __init__(self, measure: Callable[[], T]) -> None:
        self._measure = measure
        self._kept: list[T] = []

    def first(self, figure: Callable[[T], float]) -> Callable[[], float]:
        """Measure a round, and give one figure of it."""

        def measure() -> float:
            found = self._measure()
            self._kept.append(found)
            return figure(found)

        return measure

    def again(self, figure: Callable[[T], float]) -> Callable[[], float]:
        """Give another figure of each round, in their order."""
        rounds = iter(self._kept)  # Of a list that grows: it goes on with what comes.
        return lambda: figure(next(rounds))
