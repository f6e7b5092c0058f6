"""A streaming query's face towards Spark: one long-lived process plans, others read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pipeline.errors import PipelineError
from pipeline.source.batch_reader import TaskPartition
from pipeline.source.query.offsets import (
    StreamOffset,
    StreamState,
    decode_stream_offset,
    encode_stream_offset,
)
from pipeline.source.query.options import SourceOptions
from pipeline.source.query.schema import arrow_schema
from pipeline.source.stream_progress import Following
from pipeline.source.topic_source import TopicSource, read_task


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets here are the next ones to be read, everywhere."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._following: Following | None = None

    def _follow(self) -> Following:
        """Only the process that plans looks into the directories; readers are copied to others before that."""
        if self._following is None:
            self._following = Following(TopicSource(self._options))
        return self._following

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name, as those below)
        return encode_stream_offset(self._follow().begin())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> StreamOffset:  # noqa: N802 (Spark's name)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        known = decode_stream_offset(start)
        return encode_stream_offset(self._follow().advance(known, most=most, now_ms=_now_ms()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        self._follow().stop_at_latest()

    def reportLatestOffset(self) -> StreamOffset:  # noqa: N802 (Spark's name)
        return encode_stream_offset(StreamState(self._follow().latest, {}))

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        tasks = self._follow().tasks(decode_stream_offset(start), decode_stream_offset(end))
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(partition.value, options=self._options, schema=self._schema)

    def stop(self) -> None:
        if self._following is not None:
            self._following.close()


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In place of a reader whose options are wrong: says so as soon as Spark asks it for anything.

    Where `streamReader` itself raises, Spark's process tells of a failure of its own behind that.
    """

    def __init__(self, error: PipelineError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 (Spark's names)
    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse  # noqa: N815 (Spark's names)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
