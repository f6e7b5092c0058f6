"""Errors between Spark and a data directory, one clear line each: the thing, the cause, the remedy."""

from __future__ import annotations

from pathlib import Path

from topicfs.storage.errors import StorageError


class PipelineError(StorageError):
    """Base of the pipeline's own errors."""


class InvalidOptionError(PipelineError):
    """An option that is unknown, has a bad value, or contradicts another."""


class DataLossError(PipelineError):
    """Records that were asked for are not there (any more), and failOnDataLoss says that this matters."""


class SparkMissingError(PipelineError):
    """The extra `spark` is not installed."""

    def __init__(self) -> None:
        super().__init__("Spark is not installed here; get it with: pip install 'topicfs[spark]'")


class ParquetMissingError(PipelineError):
    """The extra `arrow` is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "pyarrow is not installed here, which reads archives; get it with: pip install 'topicfs[arrow]'"
        )


class NoArchiveError(PipelineError):
    """No archive where one was expected."""

    def __init__(self, archive: Path) -> None:
        super().__init__(f"{archive}: no archive there; make one: topicfs pipeline archive TOPIC {archive}")
