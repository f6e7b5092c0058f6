"""Errors between Spark and a data directory, one clear line each: the thing, the cause, the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.errors import StorageError

_RAISED = "TopicfsException: ["
"""Beginning of an error of `pipeline.spark_errors` in Spark's text, after its module and before its condition."""


class PipelineError(StorageError):
    """Base of the pipeline's own errors."""


class InvalidOptionError(PipelineError):
    """An option that is unknown, has a bad value, or contradicts another."""


class DataLossError(PipelineError):
    """Records that were asked for are not there (any more), and failOnDataLoss says that this matters."""

    REMEDY = "; failOnDataLoss=false "
    """What separates the loss from the remedy in a message."""


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
    """Raise `missing` if an import in the block does not find one of these packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in packages:
            raise missing from None
        raise


class NoArchiveError(PipelineError):
    """No archive where one was expected."""

    def __init__(self, archive: Path) -> None:
        super().__init__(f"{archive}: no archive there; make one: topicfs pipeline archive TOPIC {archive}")


class Raised(NamedTuple):
    """An error of the format as it comes back in the text of Spark's own error."""

    condition: str
    message: str


def condition_of(kind: type[Exception]) -> str:
    """Return an error's condition, as Spark names them: `TOPICFS_DATA_LOSS` of DataLossError, `TOPICFS_IO` of OSError."""
    if issubclass(kind, OSError):
        return "TOPICFS_IO"
    name = kind.__name__.removesuffix("Error")
    return "TOPICFS" + "".join(f"_{letter}" if letter.isupper() else letter for letter in name).upper()


def raised_in(text: str) -> Raised | None:
    """Return the format's own error in the text of one of Spark's; None if Spark failed for another reason."""
    for line in text.splitlines():
        _, found, raised = line.partition(_RAISED)
        if found:
            return Raised(*raised.strip().split("] ", 1))
    return None
