"""Engines that may have to wait: what they say in a thread where nothing may."""

from __future__ import annotations

import threading

import pytest

from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.remote import (
    Answer,
    NotAtHandError,
    Question,
    ThreadNeededError,
    answered,
    asks,
    changes,
)


class Far:
    """Something whose answers come from elsewhere; it remembers none."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    @asks
    def add(self, number: int, *, more: int = 0) -> int:
        self.asked.append((number, more))
        if number < 0:
            raise PartitionOfflineError("no answer")
        return number + more

    @property
    @asks
    def size(self) -> int:
        return len(self.asked)

    @changes
    def clear(self) -> None:
        self.asked.clear()


def question_of(far: Far, number: int, **more: int) -> Question:
    with answered({}), pytest.raises(NotAtHandError) as caught:
        far.add(number, **more)
    return caught.value.question


def test_a_thread_that_may_wait_gets_the_answer() -> None:
    """So does one that asks while another one may not wait."""
    far, seen = Far(), list[int]()
    assert 3 == far.add(1, more=2)
    with answered({}):
        thread = threading.Thread(target=lambda: seen.append(far.add(5)))
        thread.start()
        thread.join()
    assert [5] == seen
    assert 2 == far.size


def test_nothing_is_asked_where_nothing_may_wait() -> None:
    """The question can be asked elsewhere; with its answer at hand the same call returns it."""
    far = Far()
    question = question_of(far, 1, more=2)
    assert [] == far.asked
    value = question.ask()
    assert [(1, 2)] == far.asked
    with answered({question.key: Answer(value)}):
        assert 3 == far.add(1, more=2)
        with pytest.raises(NotAtHandError):
            far.add(1, more=3)
    assert [(1, 2)] == far.asked


def test_an_error_is_an_answer() -> None:
    """It is raised where the value would be returned."""
    far = Far()
    question = question_of(far, -1)
    with (
        answered({question.key: Answer(None, PartitionOfflineError("no answer"))}),
        pytest.raises(PartitionOfflineError, match="no answer"),
    ):
        far.add(-1)


def test_questions_are_equal_where_the_same_is_asked_of_the_same() -> None:
    """Other arguments, another method or another object make another question."""
    far = Far()
    assert question_of(far, 1).key == question_of(far, 1).key
    assert question_of(far, 1).key != question_of(far, 2).key
    assert question_of(far, 1).key != question_of(Far(), 1).key
    with answered({}), pytest.raises(NotAtHandError) as caught:
        _ = far.size
    assert caught.value.question.key != question_of(far, 1).key


def test_what_changes_something_is_no_question() -> None:
    """It is never done where nothing may wait, and once elsewhere."""
    far = Far()
    far.add(1)
    with answered({}), pytest.raises(ThreadNeededError) as caught:
        far.clear()
    assert not isinstance(caught.value, NotAtHandError)
    assert [(1, 0)] == far.asked
    far.clear()
    assert [] == far.asked


def test_what_holds_in_a_block_ends_with_it() -> None:
    """A block inside another one has answers of its own."""
    far = Far()
    key = question_of(far, 1).key
    with answered({key: Answer(10)}):
        with answered({}), pytest.raises(NotAtHandError):
            far.add(1)
        assert 10 == far.add(1)
    assert 1 == far.add(1)
