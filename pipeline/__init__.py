"""Topics in and out of Apache Spark: a data directory as a source and a sink of DataFrames, and jobs over it.

What is asked for and which offsets that means is decided by modules that know no Spark; only those that face it import
pyspark, the extra `topicfs[spark]`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

from topicfs.pipeline.errors import SparkMissingError, needing

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from topicfs.schemas.schema import Kind

__all__ = [
    "from_topicfs_avro",
    "from_topicfs_json",
    "from_topicfs_protobuf",
    "kafka_jars",
    "offsets_behind_latest",
    "register",
]


def register(spark: SparkSession) -> None:
    """Make `format("topicfs")` known to a session, with filter pushdown. SparkMissingError without pyspark."""
    with needing(SparkMissingError, "pyspark", "pyarrow"):
        from topicfs.pipeline import data_source
    data_source.register(spark)


def offsets_behind_latest(progress: StreamingQueryProgress) -> dict[str, str]:
    """Return the metrics that Spark's Kafka connector reports of a source, for the topics that a stream reads here.

        def onQueryProgress(self, event):
            print(topicfs.spark.offsets_behind_latest(event.progress))

    `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, over the partitions of all of the
    query's sources of this format; empty before the first micro-batch, and in Spark 4.1.
    """
    from topicfs.pipeline.source.query.ranges import lag_by_partition

    behind = list(lag_by_partition(json.loads(progress.json)).values())
    if not behind:
        return {}
    found = {"min": min(behind), "max": max(behind), "avg": sum(behind) / len(behind)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in found.items()}


class SchemaOptions(TypedDict, total=False):
    """The places where schemas are looked for, beside a topic `_schemas`."""

    schema_dir: str
    """A directory of files, asked first."""
    schema_registry: str
    """The URL of a registry, asked last."""
    schema_registry_auth: str
    """`USER:PASSWORD` there."""


def from_topicfs_avro(
    column: Column | str,
    path: str | None = None,
    *,
    headers: Column | str | None = None,
    of_key: bool = False,
    client_config: str | None = None,
    **schemas: Unpack[SchemaOptions],
) -> Column:
    """Decode a column of payloads that are framed for a schema registry, each by its own schema.

        topics.select(from_topicfs_avro("value", "/srv/topics").payload)

    A struct: `payload`, the value as JSON; `payload_schema_id`, or where a frame has a GUID `payload_schema_guid`; and
    `payload_base64`, all the bytes, where they could not be decoded or have no frame. With the column of `headers` (the
    source's option includeHeaders) frames in headers are read, too: those of values, or `of_key` of keys. Schemas come
    from `schema_dir`, from the topic `_schemas` of `path` (data directories, or a cluster `kafka://host:9092`) as it is
    now, and from `schema_registry`. Raises SparkMissingError, MissingLibraryError, PipelineError, StorageError, OSError.
    """
    from topicfs.schemas.schema import Kind

    return _decoded(Kind.AVRO, _Payloads(column, headers, of_key), path, client_config, schemas)


def from_topicfs_protobuf(
    column: Column | str,
    path: str | None = None,
    *,
    headers: Column | str | None = None,
    of_key: bool = False,
    client_config: str | None = None,
    **schemas: Unpack[SchemaOptions],
) -> Column:
    """Decode a column of messages of Protobuf, as `from_topicfs_avro` does."""
    from topicfs.schemas.schema import Kind

    return _decoded(Kind.PROTOBUF, _Payloads(column, headers, of_key), path, client_config, schemas)


def from_topicfs_json(
    column: Column | str, *, headers: Column | str | None = None, of_key: bool = False
) -> Column:
    """Decode a column of messages of JSON Schema, as `from_topicfs_avro` does: what is in the frame is JSON."""
    from topicfs.schemas.schema import Kind

    return _decoded(Kind.JSON, _Payloads(column, headers, of_key), None, None, {})


class _Payloads(NamedTuple):
    """The columns in which payloads and their frames are."""

    column: Column | str
    headers: Column | str | None
    of_key: bool


def _decoded(
    kind: Kind, payloads: _Payloads, path: str | None, client_config: str | None, schemas: SchemaOptions
) -> Column:
    from topicfs.schemas.places import SchemaPlaces

    with needing(SparkMissingError, "pyspark", "pyarrow"):
        from topicfs.pipeline.payload_columns import decoded_column, header_column
    directory = schemas.get("schema_dir")
    places = SchemaPlaces(
        directory=None if directory is None else Path(directory).absolute(),
        registry=schemas.get("schema_registry"),
        credentials=schemas.get("schema_registry_auth"),
    )
    header = None if payloads.headers is None else header_column(payloads.headers, of_key=payloads.of_key)
    return decoded_column(kind, (payloads.column, header), path, client_config, places)


def kafka_jars() -> str:
    """Return the jars of Spark's own Kafka connector, for the setting `spark.jars` of a session that is not begun yet.

        SparkSession.builder.config("spark.jars", topicfs.spark.kafka_jars()).getOrCreate()

    Maven fetches them the first time (a line of the log says so); TOPICFS_SPARK_KAFKA_JARS may name a folder that has
    them. PipelineError where they cannot be had.
    """
    from topicfs.pipeline.connector import CONNECTOR, joined

    return joined(CONNECTOR.folder())
