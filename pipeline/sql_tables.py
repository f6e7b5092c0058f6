"""The options of SQL tables. Spark passes them to a format in Python when a table is created, and never again.

    CREATE TABLE orders USING topicfs OPTIONS (path '/srv/topics', subscribe 'orders')

Spark keeps the schema of such a table, and passes the schema to reads and writes. So the options are stored in the
schema, as metadata of the column `topic`, when Spark asks for the schema. The schema of a DataFrame has no such
metadata: Spark names a provider only for a table.

A column that a query selects keeps its metadata. So a write may see the options of another table, from which its rows
come. If Spark has cast the rows to the target's columns, the options are those of the target, because a cast copies
the target's metadata. A cast does not copy the length of a VARCHAR. So `topic` is declared as a VARCHAR, and if its
length is missing, Spark has cast the rows. Spark does not cast a column to an equal type, so each table uses a
different length. All other writes need the options `path` and `topic`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from zlib import crc32

from pyspark.sql.types import StructField, StructType

from topicfs.pipeline.errors import InvalidOptionError
from topicfs.pipeline.places.paths import absolute

METADATA = "topicfs.options"
_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of the metadata in which Spark stores a VARCHAR's length."""
_COLUMN = "topic"
_SHORTEST, _LENGTHS = 1000, 1 << 20
_PROVIDER, _OPTION = "provider", "option."
_PLACE = ("path", "without")
_WRITER_ONLY_OPTIONS = frozenset({"topic", "committimeout"})
"""Options, in lower case, that only writers use. All other options, except those of the place, are for readers."""


def with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """Return the schema of a table with the table's options in it; unchanged if `given` does not create a table."""
    options = {name.lower(): value for name, value in given.items()}
    if _PROVIDER not in options:
        return schema
    kept = {name.removeprefix(_OPTION): value for name, value in options.items() if name.startswith(_OPTION)}
    kept |= {name: ",".join(map(str, absolute(options[name]))) for name in _PLACE if name in options}
    text = json.dumps(kept)
    noted = deepcopy(schema)
    length = _SHORTEST + crc32(text.encode()) % _LENGTHS
    noted[_COLUMN].metadata = {METADATA: text, _VARCHAR: f"varchar({length})"}
    return noted


def without_options(schema: StructType) -> StructType:
    """Return the same columns without the options of the table, which are stored in the columns' metadata."""
    return StructType([StructField(one.name, one.dataType, one.nullable) for one in schema.fields])


def reading_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return a read's options: the given options, and the stored options of its table. Raises InvalidOptionError."""
    kept = _kept(given, schema.fields)
    if kept is None and not given:
        raise InvalidOptionError(
            "this table's options are not known: Spark passes them on only if the table is created without a list of "
            "columns (CREATE TABLE name USING topicfs OPTIONS (path '/srv/topics', subscribe 'orders')); create it again "
            "that way, or create a temporary view"
        )
    return {name: value for name, value in (kept or {}).items() if name not in _WRITER_ONLY_OPTIONS} | dict(
        given
    )


def writing_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return a write's options: the given options, and the stored options of its table.

    Raises InvalidOptionError if the target of the write is unclear.
    """
    kept = _kept(
        given, [one for one in schema.fields if one.name == _COLUMN and _VARCHAR not in one.metadata]
    )
    if kept is None:
        raise InvalidOptionError(
            "this write's target is not known: Spark does not pass on the options of a table that is created by AS SELECT, "
            "with columns of its own, or written by toTable; use INSERT INTO with a list of columns into a table made by "
            "CREATE TABLE name USING topicfs OPTIONS (path '/srv/topics', subscribe 'orders', topic 'orders'), "
            "or format('topicfs') with the options path and topic. A table of an earlier version must be created again"
        )
    return {name: value for name, value in kept.items() if name in {*_WRITER_ONLY_OPTIONS, *_PLACE}} | dict(
        given
    )


def _kept(given: Mapping[str, str], fields: Iterable[StructField]) -> dict[str, str] | None:
    """Return the options in the columns' metadata; None if there are none.

    If `given` itself names a place, return an empty dict.
    """
    if not {name.lower() for name in given}.isdisjoint({"path", "paths"}):
        return {}
    noted = (field.metadata[METADATA] for field in fields if METADATA in field.metadata)
    return next(({str(name): str(value) for name, value in json.loads(one).items()} for one in noted), None)
