"""JSON Schema: messages are JSON, decoded without their schema, and encoded only if their schema accepts them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Never

from topicfs.schemas.codecs.codec import MAX_VALUE_BYTES, check_memory, guarded, json_text, library
from topicfs.schemas.schema import PayloadSchema, SchemaError

MAX_CHECKS = 200_000
"""Maximum number of checks of a value. Each keyword of the schema counts once for each part of the value to which it
applies.
"""
_LIBRARY = "jsonschema"
_NAMES_A_CHECK = 20
"""A keyword counts as one more check for each group of this many names or values in it."""
_DELIMITERS = (b",", b":", b"[", b"{")
_VALUE_BYTES, _TEXT_BYTES = 100, 6
"""Memory in bytes for each value, and for each byte of text. The number of values is estimated by counting
delimiters. Text is in memory both raw and as strings.
"""


def _no_constant(name: str) -> Never:
    raise SchemaError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=str, parse_float=str)
"""Parses numbers as text, because numbers are only validated and not converted."""


def decode_json(message: bytes) -> bytes:
    """Return a JSON message on one line, with its numbers, names and order unchanged. Raises SchemaError."""
    if (_VALUE_BYTES + _TEXT_BYTES) * len(message) > MAX_VALUE_BYTES:
        check_memory(_VALUE_BYTES * sum(map(message.count, _DELIMITERS)) + _TEXT_BYTES * len(message))
    guarded(lambda: _DECODER.decode(message.decode()), "not JSON")
    # Line ends within strings are always escaped; all other line ends are white space.
    return message.strip(b" \t\r\n").replace(b"\n", b" ").replace(b"\r", b" ")


class JsonSchemaCodec:
    """The codec of a JSON Schema. See `SchemaCodec`."""

    def __init__(self, schema: PayloadSchema, needed: Mapping[str, PayloadSchema]) -> None:
        """Compile a schema; `needed` has all its references, by URI. Raises SchemaError, MissingLibraryError."""
        self._checks = threading.local()
        self._validator = guarded(lambda: self._made(schema, needed), "not a JSON Schema")

    def _made(self, schema: PayloadSchema, needed: Mapping[str, PayloadSchema]) -> Any:
        validators = library("jsonschema.validators", _LIBRARY)
        referencing = library("referencing", _LIBRARY)
        said = _checked(json.loads(schema.text))
        kind = validators.validator_for(said, default=validators.Draft7Validator)
        kind.check_schema(said)
        registry = referencing.Registry()
        default = library("referencing.jsonschema", _LIBRARY).DRAFT7
        for name, one in needed.items():
            contents = _checked(json.loads(one.text))
            resource = referencing.Resource.from_contents(contents, default_specification=default)
            registry = registry.with_resource(name, resource)
        checks = {**kind.VALIDATORS, "uniqueItems": _unique_items}
        counted = {name: self._counted(check) for name, check in checks.items()}
        return validators.extend(kind, counted)(said, registry=registry)

    def _counted(self, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        """Wrap a check so that its calls are counted and limited.

        Without a limit, a schema that refers to itself twice would take exponential time.
        """

        def count(checks: int) -> None:
            self._checks.left -= checks
            if self._checks.left < 0:
                raise SchemaError(f"more than {MAX_CHECKS} checks")

        def counting(validator: Any, said: Any, *others: Any) -> Iterator[Any]:
            count(1 + (len(said) // _NAMES_A_CHECK if isinstance(said, dict | list) else 0))
            for wrong in check(validator, said, *others) or ():
                count(1)
                yield wrong

        return counting

    def decode(self, message: bytes, path: bytes | None) -> bytes:
        del path
        return decode_json(message)

    def encode(self, value: object) -> bytes:
        self._checks.left = MAX_CHECKS
        wrong = guarded(lambda: next(self._validator.iter_errors(value), None), "cannot be checked")
        if wrong is not None:
            raise SchemaError(f"{wrong.message:.200}, at {wrong.json_path:.100}")
        return json_text(value, plain=True)


def _unique_items(validator: Any, said: Any, value: Any, _schema: Any) -> Iterator[Any]:
    """Check `uniqueItems` in linear time; the library would compare each object with each other object."""
    if not said or not validator.is_type(value, "array"):
        return
    if len({json.dumps(_comparable(item), sort_keys=True) for item in value}) < len(value):
        yield library("jsonschema", _LIBRARY).ValidationError(f"{value!r:.60} has an item twice")


def _comparable(value: Any) -> Any:
    """Return a value whose JSON is the same for equal values: 1.0 becomes 1."""
    if isinstance(value, dict):
        return {name: _comparable(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(_comparable, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _checked(said: Any) -> Any:
    """Return the schema. Raises SchemaError if the schema has patterns, which could take forever to match."""
    left = [said]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if isinstance(part.get("pattern"), str) or isinstance(part.get("patternProperties"), dict):
                raise SchemaError("it has patterns, which are not checked here")
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
    return said
