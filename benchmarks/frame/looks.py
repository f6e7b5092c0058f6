"""Two figures of the same rounds: a case measures, a later one looks at the same results again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Looks(Generic[T]):
    """What a side's rounds gave, kept until they were looked at twice.

    Both cases run as many rounds, and the first of them comes first.
    """

    def __init__(self, measure: Callable[[], T]) -> None:
        self._measure = measure
        self._kept: deque[T] = deque()

    def first(self, figure: Callable[[T], float]) -> Callable[[], float]:
        """Measure a round, and give one figure of it."""

        def measure() -> float:
            found = self._measure()
            self._kept.append(found)
            return figure(found)

        return measure

    def again(self, figure: Callable[[T], float]) -> Callable[[], float]:
        """Give another figure of the round that was measured first and not looked at again."""
        return lambda: figure(self._kept.popleft())
