"""Topics in and out of Apache Spark: a data directory as a source and a sink of DataFrames, and jobs over it.

Most modules parse options and compute offsets without Spark. Only the modules that implement Spark's interfaces
import pyspark (the extra `topicfs[spark]`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from topicfs.pipeline.errors import SparkMissingError, needing

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = [
    "from_topicfs_avro",
    "from_topicfs_json",
    "from_topicfs_protobuf",
    "kafka_jars",
    "offsets_behind_latest",
    "register",
]


def register(spark: SparkSession) -> None:
    """Register `format("topicfs")` in a session, with filter pushdown. Raises SparkMissingError without pyspark."""
    with needing(SparkMissingError, "pyspark", "pyarrow"):
        from topicfs.pipeline import data_source
    data_source.register(spark)


def offsets_behind_latest(progress: StreamingQueryProgress) -> dict[str, str]:
    """Return the lag metrics of Spark's Kafka connector for a streaming query that reads this format.

        def onQueryProgress(self, event):
            print(topicfs.spark.offsets_behind_latest(event.progress))

    The keys are `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, over all partitions
    of the query's sources of this format. The result is empty before the first micro-batch, and in Spark 4.1.
    """
    from topicfs.pipeline.source.query.ranges import lag_by_partition

    behind = list(lag_by_partition(json.loads(progress.json)).values())
    if not behind:
        return {}
    found = {"min": min(behind), "max": max(behind), "avg": sum(behind) / len(behind)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in found.items()}


class SchemaOptions(TypedDict, total=False):
    """Where to look for schemas, in addition to the topic `_schemas`."""

    schema_dir: str
    """Directory of schema files, searched first."""
    schema_registry: str
    """URL of a schema registry, queried last."""
    schema_registry_auth: str
    """Credentials for the registry: `USER:PASSWORD`."""


def from_topicfs_avro(
    column: Column | str,
    path: str | None = None,
    *,
    headers: Column | str | None = None,
    of_key: bool = False,
    client_config: str | None = None,
    **schemas: Unpack[SchemaOptions],
) -> Column:
    """Decode a column of payloads framed for a schema registry, each with the schema that its frame names.

        topics.select(from_topicfs_avro("value", "/srv/topics").payload)

    The result is a struct. `payload` is the value as JSON. `payload_schema_id` is the id in the frame, or
    `payload_schema_guid` if the frame has a GUID. `payload_base64` is the whole payload, if it has no frame or cannot
    be decoded. Pass the column `headers` (the source's option includeHeaders) to also read frames in record headers:
    the frames of values or, with `of_key`, the frames of keys. Schemas come from `schema_dir`, from the topic
    `_schemas` of `path` (data directories, or a cluster `kafka://host:9092`) as it is at the call, and from
    `schema_registry`. Raises SparkMissingError, MissingLibraryError, PipelineError, StorageError, OSError.
    """
    return _decoded("AVRO", (column, headers, of_key), path, client_config, schemas)


def from_topicfs_protobuf(
    column: Column | str,
    path: str | None = None,
    *,
    headers: Column | str | None = None,
    of_key: bool = False,
    client_config: str | None = None,
    **schemas: Unpack[SchemaOptions],
) -> Column:
    """Decode a column of framed Protobuf messages, like `from_topicfs_avro`."""
    return _decoded("PROTOBUF", (column, headers, of_key), path, client_config, schemas)


def from_topicfs_json(
    column: Column | str, *, headers: Column | str | None = None, of_key: bool = False
) -> Column:
    """Decode a column of framed JSON Schema messages to JSON. Unlike `from_topicfs_avro`, this needs no schema."""
    return _decoded("JSON", (column, headers, of_key), None, None, {})


def _decoded(
    kind: str,
    payloads: tuple[Column | str, Column | str | None, bool],
    path: str | None,
    client_config: str | None,
    schemas: SchemaOptions,
) -> Column:
    from topicfs.schemas.places import SchemaPlaces
    from topicfs.schemas.schema import Kind

    with needing(SparkMissingError, "pyspark", "pyarrow"):
        from topicfs.pipeline.payload_columns import decoded_column, header_column
    directory = schemas.get("schema_dir")
    places = SchemaPlaces(
        directory=None if directory is None else Path(directory).absolute(),
        registry=schemas.get("schema_registry"),
        credentials=schemas.get("schema_registry_auth"),
    )
    column, headers, of_key = payloads
    header = None if headers is None else header_column(headers, of_key=of_key)
    return decoded_column(Kind[kind], (column, header), path, client_config, places)


def kafka_jars() -> str:
    """Return the jars of Spark's Kafka connector for the setting `spark.jars` of a session that has not started yet.

        SparkSession.builder.config("spark.jars", topicfs.spark.kafka_jars()).getOrCreate()

    The first call logs a message and fetches the jars with Maven. TOPICFS_SPARK_KAFKA_JARS may name a folder that has
    the jars. Raises PipelineError if the jars cannot be fetched.
    """
    from topicfs.pipeline.connector import CONNECTOR, joined

    return joined(CONNECTOR.folder())
