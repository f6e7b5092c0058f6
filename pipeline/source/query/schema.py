"""The columns of a read with Spark's names and types, and the schema of the columns that a user requests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from topicfs.pipeline.errors import InvalidOptionError
from topicfs.pipeline.source.arrow import SCHEMA

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField("headers", ArrayType(_HEADER))

_ARROW = {field.name: field.type for field in SCHEMA} | {
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
}
"""Arrow types of the columns, as Spark expects them; Spark's own function for this differs between its versions."""


def full_schema(*, include_headers: bool) -> StructType:
    """Return all columns, nullable as in Spark's Kafka connector."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))


def arrow_schema(asked: StructType) -> Any:
    """Return the Arrow schema of a user's schema: some of the columns, in any order. Raises InvalidOptionError."""
    known = {field.name: field for field in full_schema(include_headers=True)}
    for field in asked:
        if field.name not in known:
            raise InvalidOptionError(f"schema: no column {field.name}; there are {', '.join(known)}")
        expected = known[field.name].dataType
        if field.dataType != expected:
            raise InvalidOptionError(
                f"schema: {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}"
            )
    return pa.schema([pa.field(field.name, _ARROW[field.name], field.nullable) for field in asked])
