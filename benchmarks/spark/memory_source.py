"""A data source of Spark with Arrow batches from memory: no source in Python can be faster.

The topicfs source makes the batches before the measurement. They are mapped into each of Spark's Python processes,
and a read only passes them on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from topicfs.pipeline.source.query.options import parse_source_options
from topicfs.pipeline.source.query.schema import arrow_schema, full_schema
from topicfs.pipeline.source.topic_source import TopicSource, read_task

NAME = "prebuilt"


def write_batches(data: Path, topic: str, folder: Path) -> None:
    """Read a topic once, with headers, and write a file of Arrow batches for each task."""
    options = parse_source_options({"path": str(data), "subscribe": topic}, streaming=False)
    schema = arrow_schema(full_schema(include_headers=True))
    with closing(TopicSource(options)) as source:
        tasks = source.tasks(source.batch_ranges())
    folder.mkdir(parents=True)
    for number, task in enumerate(tasks):
        with (
            pa.OSFile(str(folder / f"{number}.arrow"), "wb") as file,
            pa.ipc.new_file(file, schema) as writer,
        ):
            for batch in read_task(task, options=options, schema=schema):
                writer.write_batch(batch)


@lru_cache(maxsize=64)
def _batches(file: str, names: tuple[str, ...]) -> list[Any]:
    reader = pa.ipc.open_file(pa.memory_map(file))
    return [reader.get_batch(number).select(list(names)) for number in range(reader.num_record_batches)]


class PrebuiltReader(DataSourceReader):
    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = tuple(names)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(str(file)) for file in sorted(self._folder.glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from _batches(partition.value, self._names)


class PrebuiltSource(DataSource):
    """The data source, with the options `folder` and `includeHeaders`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return full_schema(include_headers=self.options.get("includeHeaders") == "true")

    def reader(self, schema: StructType) -> PrebuiltReader:
        return PrebuiltReader(Path(self.options["folder"]), schema.names)
