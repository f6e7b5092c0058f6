"""Awaits a coroutine that has already been started."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BegunCoroutine(Generic[T]):
    """A started coroutine that waits for something. Awaiting this object resumes the coroutine."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: object) -> None:
        """Wrap a coroutine whose first `send` returned `awaited`."""
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, awaited = self._coroutine, self._awaited
        while True:
            step: Callable[[], object]
            try:
                step = partial(coroutine.send, (yield awaited))
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's, whatever it is
                step = partial(coroutine.throw, error)
            try:
                awaited = step()
            except StopIteration as end:
                result: T = end.value
                return result
