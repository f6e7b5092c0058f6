"""The format `topicfs`: topics of data directories through Spark's data source API."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.sink.writers import TopicStreamWriter, TopicWriter, target_of
from topicfs.pipeline.source.query.options import SourceOptions, includes_headers, parse_source_options
from topicfs.pipeline.source.query.schema import full_schema
from topicfs.pipeline.source.readers import BatchReader, FilteringBatchReader, RefusedStream, StreamReader
from topicfs.pipeline.spark_errors import reported
from topicfs.pipeline.sql_tables import reading_options, with_options, without_options, writing_options

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting for filter pushdown, by default off. While it is off, Spark rejects readers that accept filters."""
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""Module of the worker that Spark starts to plan a read with filters, if the setting is on."""


class TopicfsDataSource(DataSource):
    """The format `topicfs`: Spark finds it by the package `pyspark_topicfs`, or by `topicfs.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "topicfs"

    @reported
    def schema(self) -> StructType:
        return with_options(full_schema(include_headers=includes_headers(self.options)), self.options)

    @reported
    def reader(self, schema: StructType) -> BatchReader:
        make = FilteringBatchReader if _passes_filters() else BatchReader
        return make(*self._reading(schema, streaming=False))

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:
        try:
            return StreamReader(*self._reading(schema, streaming=True))
        except PipelineError as error:
            return RefusedStream(error)

    @reported
    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        return TopicWriter(target_of(writing_options(self.options, schema), schema, overwrite=overwrite))

    @reported
    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        return TopicStreamWriter(
            target_of(writing_options(self.options, schema), schema, overwrite=overwrite)
        )

    def _reading(self, schema: StructType, *, streaming: bool) -> tuple[SourceOptions, StructType]:
        options = parse_source_options(reading_options(self.options, schema), streaming=streaming)
        return options, without_options(schema)


def register(spark: SparkSession) -> None:
    """Register `topicfs` in a session, with filter pushdown to segments and indexes."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(TopicfsDataSource)


def _passes_filters() -> bool:
    """Return whether this process is the worker, or its daemon, through which Spark passes filters to a reader."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in {*sys.argv[1:2], getattr(spec, "name", "")}
