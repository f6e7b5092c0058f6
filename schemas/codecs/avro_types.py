"""Types of Avro, reduced to what decoding needs, and an upper bound of the memory that their values take.

With some schemas, a few bytes decode to any number of values: arrays of nulls, records of records of empty records.
So each type has an *excess*: the memory that a value takes beyond `rate` bytes for each byte of its encoding. The
rate is the smallest power of two at which neither the items of arrays and maps, nor types that contain themselves,
have an excess. A message of n bytes then takes at most the excess of its type plus `rate` times n.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from topicfs.schemas.codecs.avro_decimals import decimal_of
from topicfs.schemas.schema import MAX_DEPTH, SchemaError

AvroType: TypeAlias = Any
"""A type as `fastavro.parse_schema` returns it: a name, a list (a union) or a dict."""

MAX_TYPES = 50_000
MAX_RATE = 2**22

_NAMED = {"record": "record", "error": "record", "enum": "enum", "fixed": "fixed"}
_SIZES = {
    "null": (8, 0),
    "boolean": (8, 1),
    "int": (40, 1),
    "long": (40, 1),
    "float": (40, 4),
    "double": (40, 8),
    "string": (60, 1),
    "bytes": (60, 1),
}
"""Memory of a value in bytes, and its smallest encoded size in bytes. Each further byte of a string takes `PER_BYTE`,
because its text form may have six characters.
"""
PER_BYTE = 8
_RECORD, _FIELD, _CONTAINER, _ITEM, _ENUM = 200, 48, 120, 8, 64
_TEXTS = 3
"""Copies of an enum's symbol in memory for each value: the symbol, the whole text, and the text as bytes."""
_WITHIN_ITSELF = -_ITEM
"""The excess that a type is assumed to have where it occurs within itself. If the excess that follows for the whole
type is larger than this, the assumption is wrong, and the rate does not bound the memory.
"""


class Normalizer:
    """Reduces a schema to what decoding and encoding need. Decimals are the only logical types that remain."""

    def __init__(self) -> None:
        self._left = MAX_TYPES

    def type_of(self, said: AvroType, depth: int = 0) -> AvroType:
        """Return the reduced type. Raises SchemaError if the type is invalid, or has too many types or levels."""
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise SchemaError(f"more than {MAX_DEPTH} levels of types, or {MAX_TYPES} in all")
        if isinstance(said, str):
            return said
        if isinstance(said, list):
            return [self.type_of(branch, depth + 1) for branch in said]
        if not isinstance(said, dict) or "type" not in said:
            raise SchemaError(f"{said!r:.60} is not an Avro type")
        kind = said["type"]
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return {"type": kind, part: self.type_of(said.get(part), depth + 1)}
        if isinstance(kind, str) and kind in _NAMED:
            return self._named(said, kind, depth)
        if kind == "bytes":
            return {"type": "bytes", **decimal_of(said)}
        return self.type_of(kind, depth + 1)

    def _named(self, said: dict[str, Any], kind: str, depth: int) -> dict[str, Any]:
        named = {name: said[name] for name in ("name", "namespace") if isinstance(said.get(name), str)}
        named["type"] = _NAMED[kind]
        if kind == "enum":
            return {**named, "symbols": said.get("symbols"), **_kept(said, "default")}
        if kind == "fixed":
            return {**named, "size": said.get("size"), **decimal_of(said)}
        fields = said.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise SchemaError(f"record {named.get('name')!r:.60} has no list of fields")
        return {
            **named,
            "fields": [
                {
                    "name": field.get("name"),
                    "type": self.type_of(field.get("type"), depth + 1),
                    **_kept(field, "default"),
                }
                for field in fields
            ],
        }


def _kept(said: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: said[name]} if name in said else {}


class MemoryBound:
    """An upper bound of the memory that the values of a type take."""

    def __init__(self, avro_type: AvroType, names: Mapping[str, AvroType]) -> None:
        """Find the smallest rate. Raises SchemaError if no rate bounds the memory."""
        self._names = names
        self.recursive = False
        """True if a value may contain another value of its own type, to any depth."""
        rate = 16
        while rate <= MAX_RATE:
            excess = _Excess(names, rate)
            self._own = excess.of(avro_type)
            self.recursive = self.recursive or excess.recursive
            if excess.bounded:
                self._rate = rate
                return
            rate *= 2
        raise SchemaError(
            "the size of a message does not bound its decoded size: items of an array may take no bytes"
        )

    def bytes_of(self, message_size: int) -> int:
        """Return the largest memory that a message of `message_size` bytes can take."""
        return max(self._own, 0) + (self._rate + PER_BYTE) * message_size


class _Excess:
    """Computes the excess of types at a given rate."""

    def __init__(self, names: Mapping[str, AvroType], rate: int) -> None:
        self._names = names
        self._rate = rate
        self._known: dict[str, int] = {}
        self._under_way: set[str] = set()
        self._repeated: set[str] = set()
        self.bounded = True
        self.recursive = False

    def of(self, avro_type: AvroType) -> int:
        if isinstance(avro_type, list):
            return max(map(self.of, avro_type), default=0) - self._rate
        kind = avro_type if isinstance(avro_type, str) else avro_type["type"]
        if kind in _SIZES:
            memory, size = _SIZES[kind]
            return memory - self._rate * size
        if kind == "array":
            return self._container(self.of(avro_type["items"]) + _ITEM)
        if kind == "map":
            return self._container(self.of(avro_type["values"]) + 120 - self._rate)
        return self._named(avro_type if isinstance(avro_type, str) else avro_type["name"])

    def _container(self, item: int) -> int:
        if item > 0:
            self.bounded = False
        return _CONTAINER - self._rate

    def _named(self, name: str) -> int:
        if name in self._known:
            return self._known[name]
        if name in self._under_way:
            self._repeated.add(name)
            self.recursive = True
            return _WITHIN_ITSELF
        self._under_way.add(name)
        excess = self._definition(self._names[name])
        self._under_way.discard(name)
        if name in self._repeated and excess > _WITHIN_ITSELF:
            self.bounded = False
        self._known[name] = excess
        return excess

    def _definition(self, named: AvroType) -> int:
        if named["type"] == "enum":
            return _ENUM + _TEXTS * max(map(len, named["symbols"]), default=0) - self._rate
        if named["type"] == "fixed":
            return 60 - self._rate * max(int(named["size"]), 0)
        fields = named["fields"]
        return _RECORD + sum(_FIELD + len(field["name"]) + self.of(field["type"]) for field in fields)
