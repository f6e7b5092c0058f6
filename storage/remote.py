"""Engines whose answers come from elsewhere, as those of a Kafka cluster do: how they say that they would have to wait.

    event loop's thread                         another thread
    partition.read() ─► NotAtHandError ───────► question.ask() waits for the answer
    partition.read() ◄─ the answer ◄──────────────────┘

A thread in which nothing may wait calls the engine inside `answered`. What the engine marks with `asks` raises
NotAtHandError there in place of waiting. The caller has the question asked in a thread that may wait, and does again
what it did, inside `answered` with the answer: so an engine need remember nothing. What is marked with `changes` is
never done there at all. In every other thread both simply wait.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


class Question(NamedTuple):
    """A call that may have to wait for its answer. It changes nothing."""

    key: Hashable
    """Equal for calls that ask for the same: they can share one answer."""
    ask: Callable[[], object]
    """Waits for the answer, and returns or raises it."""


class Answer(NamedTuple):
    """The end of a question: a value, or the error that was raised."""

    value: object
    error: Exception | None = None


Answers: TypeAlias = Mapping[Hashable, Answer]


class ThreadNeededError(Exception):
    """More than may be done in this thread, the event loop's: to be done again in another one."""


class NotAtHandError(ThreadNeededError):
    """The engine would have to wait for an answer, and this thread must not."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


class _Thread(threading.local):
    answers: Answers | None = None
    """The answers at hand where nothing may wait; None in a thread that may."""


_THREAD = _Thread()


@contextmanager
def answered(answers: Answers) -> Iterator[None]:
    """Let nothing wait in this thread meanwhile: an engine gives one of these answers, or raises NotAtHandError."""
    before, _THREAD.answers = _THREAD.answers, answers
    try:
        yield
    finally:
        _THREAD.answers = before


def asks(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Mark a method of an engine that may have to wait, and changes nothing. Its arguments are hashable.

    What the engine has at hand, it gives without calling a method that is so marked.
    """

    @functools.wraps(method)
    def asked(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answers = _THREAD.answers
        if answers is None:
            return method(self, *args, **kwargs)
        key = method, self, args, tuple(sorted(kwargs.items()))
        answer = answers.get(key)
        if answer is None:
            raise NotAtHandError(Question(key, partial(method, self, *args, **kwargs)))
        if answer.error is not None:
            raise answer.error.with_traceback(None)
        return cast("T", answer.value)

    return asked


def changes(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Mark a method of an engine that waits, and whose call must not be repeated: where nothing may wait it raises ThreadNeededError."""

    @functools.wraps(method)
    def changed(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if _THREAD.answers is not None:
            raise ThreadNeededError
        return method(self, *args, **kwargs)

    return changed
