"""Errors of `format("topicfs")` as a user sees them: a condition and one sentence, without a traceback."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark.errors import PySparkException

from topicfs.pipeline.errors import condition_of
from topicfs.storage.errors import StorageError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class TopicfsException(PySparkException):
    """An error of `format("topicfs")`. Only its text passes through Spark: `[TOPICFS_DATA_LOSS] orders-0: …`."""

    def __init__(self, error: StorageError | OSError) -> None:
        super().__init__(message=str(error), errorClass=condition_of(type(error)))


def reported(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a method that Spark calls in a worker: expected errors become TopicfsException."""
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def iterate(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
            with _reporting():
                yield from method(*args, **kwargs)

        return iterate

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _reporting():
            return method(*args, **kwargs)

    return call


@contextmanager
def _reporting() -> Iterator[None]:
    try:
        yield
    except (StorageError, OSError) as error:
        # This makes Spark print the error without a traceback. A worker ends at its first error, so no other
        # error is affected.
        os.environ.setdefault("SPARK_HIDE_TRACEBACK", "1")
        raise TopicfsException(error) from error
