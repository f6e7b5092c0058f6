"""Errors between Spark and a data directory. Each message is one line: the thing, the cause, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.errors import StorageError

_RAISED = "TopicfsException: ["
"""Spark wraps an error of `pipeline.spark_errors` in an error of its own.

In the message of Spark's error, this prefix precedes the name of our error's condition.
"""


class PipelineError(StorageError):
    """Base of the pipeline's own errors."""


class InvalidOptionError(PipelineError):
    """An option is unknown, has an invalid value, or contradicts another option."""


class DataLossError(PipelineError):
    """The query requests records that do not exist or no longer exist, and failOnDataLoss is true."""

    REMEDY = "; failOnDataLoss=false "
    """In a message, this text separates the description of the loss from the remedy."""


class SparkMissingError(PipelineError):
    """The extra `spark` is not installed."""

    def __init__(self) -> None:
        super().__init__("Spark is not installed here; get it with: pip install 'topicfs[spark]'")


class IcebergMissingError(PipelineError):
    """The extra `iceberg` is not installed."""

    def __init__(self) -> None:
        super().__init__("pyiceberg is not installed here; get it with: pip install 'topicfs[spark,iceberg]'")


@contextmanager
def needing(missing: type[PipelineError], *packages: str) -> Iterator[None]:
    """Raise `missing` if an import in the block fails because one of `packages` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in packages:
            raise missing from None
        raise


class NoArchiveError(PipelineError):
    """There is no archive in this directory."""

    def __init__(self, archive: Path) -> None:
        super().__init__(f"{archive}: no archive there; make one: topicfs pipeline archive TOPIC {archive}")


class Raised(NamedTuple):
    """An error of `format("topicfs")`, parsed from the text of a Spark error."""

    condition: str
    message: str


def condition_of(kind: type[Exception]) -> str:
    """Return the condition of an error class: `TOPICFS_DATA_LOSS` for DataLossError, `TOPICFS_IO` for OSError."""
    if issubclass(kind, OSError):
        return "TOPICFS_IO"
    name = kind.__name__.removesuffix("Error")
    return "TOPICFS" + "".join(f"_{letter}" if letter.isupper() else letter for letter in name).upper()


def raised_in(text: str) -> Raised | None:
    """Return the format's error that the text of a Spark error contains; None if Spark failed for another reason."""
    for line in text.splitlines():
        _, found, raised = line.partition(_RAISED)
        if found:
            return Raised(*raised.strip().split("] ", 1))
    return None
