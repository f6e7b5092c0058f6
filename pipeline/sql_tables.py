"""The options of SQL tables: Spark passes them to a format written in Python when a table is created, and never again.

    CREATE TABLE orders USING topicfs OPTIONS (path '/srv/topics', subscribe 'orders')

Spark keeps the schema of such a table and passes that on. So the options are stored there, as metadata of the first
column, when Spark asks for the schema; reads and writes of the table find them in it. The schema of a DataFrame stays as
it is: Spark names a provider only for a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pipeline.errors import InvalidOptionError

METADATA = "topicfs.options"
_PROVIDER, _OPTION = "provider", "option."
_PLACE = ("path", "without")
_OF_WRITING = frozenset({"topic", "committimeout"})
"""Options, in lower case, that mean something to writers alone; all others but those of the place are for readers."""


def with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """Return the schema of a table with the table's options in it; as it is where no table is made."""
    options = {name.lower(): value for name, value in given.items()}
    if _PROVIDER not in options:
        return schema
    kept = {name.removeprefix(_OPTION): value for name, value in options.items() if name.startswith(_OPTION)}
    kept |= {name: options[name] for name in _PLACE if name in options}
    first, *others = schema.fields
    noted = StructField(first.name, first.dataType, first.nullable, {METADATA: json.dumps(kept)})
    return StructType([noted, *others])


def without_options(schema: StructType) -> StructType:
    """Return the same columns without a table's options."""
    return StructType([StructField(one.name, one.dataType, one.nullable) for one in schema.fields])


def reading_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read: those given, and of a table those that it was made with (InvalidOptionError)."""
    kept = _kept(given, schema)
    return {name: value for name, value in kept.items() if name not in _OF_WRITING} | dict(given)


def writing_options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a write, in the same way."""
    kept = _kept(given, schema)
    return {name: value for name, value in kept.items() if name in {*_OF_WRITING, *_PLACE}} | dict(given)


def _kept(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    for field in schema.fields:
        if METADATA in field.metadata:
            return {str(name): str(value) for name, value in json.loads(field.metadata[METADATA]).items()}
    if not given:
        raise InvalidOptionError(
            "this table's options are not known: Spark hands them on where a table is made without columns of its own "
            "(CREATE TABLE name USING topicfs OPTIONS (path '/srv/topics', subscribe 'orders')), or make a temporary view"
        )
    return {}
