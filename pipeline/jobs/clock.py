"""A stream of nothing but time: it lets the watermark of a query pass the last windows when nothing more will come.

Spark emits a window when a later record has moved the watermark. This source, beside the records', makes one row with
the time that its option names, and otherwise none; its offset is in the query's checkpoint, as with any source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from topicfs.pipeline.source.readers import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

FORMAT = "topicfs_clock"
OPTION = "until"
"""Time of the row in microseconds since 1970; a time that was reached before makes no row."""
EPOCH = datetime.fromtimestamp(0, UTC)


class ClockSource(DataSource):
    """The format, as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "timestamp timestamp"

    def streamReader(self, schema: StructType) -> ClockReader:
        del schema
        return ClockReader(int(self.options.get(OPTION, "0")))


class ClockReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader; its offset is the time that it reached."""

    def __init__(self, until_us: int) -> None:
        self._until_us = until_us

    def initialOffset(self) -> dict[str, int]:
        return {OPTION: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(
        self, start: Mapping[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        del limit
        return {OPTION: max(start[OPTION] if start else 0, self._until_us)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the row is known already."""

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(end[OPTION])] if end[OPTION] > start[OPTION] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (EPOCH + timedelta(microseconds=partition.value),)
