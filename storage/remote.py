"""Engines whose answers come over a network, such as a Kafka cluster: how they say that a call would have to wait.

    event loop's thread                         another thread
    partition.read() ─► NotAtHandError ───────► question.ask() waits for the answer
    partition.read() ◄─ the answer ◄──────────────────┘

A thread that must not wait calls the engine inside `answered`. A method that the engine marked with `asks` raises
NotAtHandError there instead of waiting. The caller asks the question in a thread that may wait, and repeats its call
inside `answered` with the answer, so that an engine need remember nothing. A method marked with `changes` is never run
there. In every other thread both simply wait.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import (
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
)

from topicfs.storage.model import Appended

P = ParamSpec("P")
T = TypeVar("T")


class Question(NamedTuple):
    """A call that may have to wait for its answer. It changes nothing."""

    key: Hashable
    """A key that is equal for calls that ask for the same thing, which can share one answer."""
    ask: Callable[[], object]
    """The call that waits for the answer, and returns or raises it."""


class Answer(NamedTuple):
    """The end of a question: a value, or the error that was raised."""

    value: object
    error: Exception | None = None


Answers: TypeAlias = Mapping[Hashable, Answer]


class ThreadNeededError(Exception):
    """The call must be repeated in another thread: this one, the event loop's, must not do that much."""


class NotAtHandError(ThreadNeededError):
    """The engine would have to wait for an answer, and this thread must not."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


class _Thread(threading.local):
    answers: Answers | None = None
    """The answers at hand in a thread that must not wait; None in one that may."""


_THREAD = _Thread()


@contextmanager
def answered(answers: Answers) -> Iterator[None]:
    """Forbid waiting in this thread during the block: an engine returns one of these answers, or raises NotAtHandError."""
    before, _THREAD.answers = _THREAD.answers, answers
    try:
        yield
    finally:
        _THREAD.answers = before


def asks(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Mark a method of an engine that may have to wait, and changes nothing. Its arguments are hashable.

    An engine returns what it has at hand without calling such a method.
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
    """Mark a method of an engine that waits and must not be called twice: in a thread that must not wait it raises ThreadNeededError."""

    @functools.wraps(method)
    def changed(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if _THREAD.answers is not None:
            raise ThreadNeededError
        return method(self, *args, **kwargs)

    return changed


class PendingAppend(Protocol):
    """An append that was begun, and has not ended."""

    @property
    def failed(self) -> bool:
        """True if it is known to have failed."""

    def end(self) -> Appended:
        """Wait for the end of the append (blocking). Raises what `Partition.append` does."""


class BeginsAppends(Protocol):
    """A partition of which several appends may be under way."""

    def begin_append(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> PendingAppend:
        """Begin an append behind those that were begun, unless `unless` returns True once it is its turn (blocking).

        Raises what `Partition.append` does for the sake of the batches.
        """
