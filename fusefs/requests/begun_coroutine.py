"""A coroutine that was begun before it is awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BegunCoroutine(Generic[T]):
    """A coroutine that waits for something: awaiting this goes on with it from there."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: object) -> None:
        """Take over a coroutine whose first `send` returned what is `awaited`."""
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
