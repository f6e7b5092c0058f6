"""Attributes that are made when somebody first reads them."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class MadeOnce(Generic[T]):
    """Decorates a method: the attribute of its name is what the method returned when it was first read, in any thread.

    `functools.cached_property` takes no lock from Python 3.12 on, and two threads could each make one.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self._lock = RLock()

    def __get__(self, owner: object, _type: type | None = None) -> T:
        made: dict[str, Any] = owner.__dict__
        with self._lock:
            if self._name not in made:
                made[self._name] = self._make(owner)
            found: T = made[self._name]
        return found


def make_all(owner: object) -> None:
    """Make every attribute of this kind now."""
    for name in _names(owner):
        getattr(owner, name)


def end_all(owner: object) -> None:
    """Close or stop what was made, in the order of the class."""
    for name in _names(owner):
        made = owner.__dict__.get(name)
        if made is not None:
            (made.close if hasattr(made, "close") else made.stop)()


def _names(owner: object) -> list[str]:
    return [
        name for one in type(owner).__mro__ for name, kind in vars(one).items() if isinstance(kind, MadeOnce)
    ]
