"""The format `topicfs`: a data directory's topics as Spark's data source API wants them."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pipeline.errors import PipelineError
from pipeline.sink.writers import TopicStreamWriter, TopicWriter, batch_writer, stream_writer
from pipeline.source.batch import BatchReader, FilteringBatchReader
from pipeline.source.options import includes_headers, parse_source_options
from pipeline.source.schema import full_schema
from pipeline.source.stream import RefusedStream, StreamReader

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default, and then Spark refuses readers that take filters."""


class TopicfsDataSource(DataSource):
    """Registered by Spark itself (`pyspark_topicfs`): reads without filter pushdown, which is off by default."""

    @classmethod
    def name(cls) -> str:
        return "topicfs"

    def schema(self) -> StructType:
        return full_schema(include_headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse_source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:  # noqa: N802 (Spark's name)
        try:
            return StreamReader(parse_source_options(self.options, streaming=True), schema)
        except PipelineError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: N802 (Spark's name)
        return stream_writer(self.options, schema, overwrite=overwrite)


class FilteringDataSource(TopicfsDataSource):
    """Registered by `pipeline.register`, which switches pushdown on."""

    def reader(self, schema: StructType) -> BatchReader:
        return FilteringBatchReader(parse_source_options(self.options, streaming=False), schema)


def register(spark: SparkSession) -> None:
    """Make `topicfs` known to a session, with filters handed down to segments and indexes."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(FilteringDataSource)
