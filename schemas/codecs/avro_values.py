"""Converts values of JSON to values that fastavro encodes: the reverse of decoding.

Nothing is guessed and nothing is lost: a number that is too large, an unknown field, or an unknown symbol is an
error. For a union, the first branch that fits is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicfs.schemas.codecs.avro_decimals import LOGICAL_TYPE, decimal_bytes
from topicfs.schemas.codecs.avro_types import AvroType
from topicfs.schemas.schema import SchemaError

MAX_STEPS = 1_000_000
"""Maximum number of parts that a converted value may have. If several branches of a union are tried, each counts the
parts again. Parts of defaults count as well.
"""
_LETTERS_A_STEP = 100
"""A string counts as another part for each 100 characters, and an enum for each 100 symbols, because a long default
may be repeated many times.
"""

_INTEGERS = {"int": 2**31, "long": 2**63}
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}


class AvroValue:
    """The conversion of one value."""

    def __init__(self, names: Mapping[str, AvroType]) -> None:
        self._names = names
        self._left = MAX_STEPS

    def of(self, avro_type: AvroType, value: Any, place: str = "") -> Any:
        """Convert a value; `place` is the value's path for messages. Raises SchemaError."""
        self._count(1 + (len(value) // _LETTERS_A_STEP if isinstance(value, str) else 0))
        if isinstance(avro_type, list):
            return self._of_union(avro_type, value, place)
        if isinstance(avro_type, str) and avro_type in self._names:
            avro_type = self._names[avro_type]
        kind = avro_type if isinstance(avro_type, str) else avro_type["type"]
        if kind == "record":
            return self._of_record(avro_type, value, place)
        if (kind, type(value)) in (("array", list), ("map", dict)):
            return self._of_parts(avro_type, value, place)
        if kind == "enum" and isinstance(value, str):
            self._count(len(avro_type["symbols"]) // _LETTERS_A_STEP)
            if value in avro_type["symbols"]:
                return value
        if kind in ("bytes", "fixed"):
            return _octets(avro_type, value, place)
        return _primitive(kind, value, place)

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise SchemaError(
                "finding a branch of the union takes too long, or the schema has too many defaults"
            )

    def _of_parts(self, avro_type: AvroType, value: Any, place: str) -> Any:
        if isinstance(value, list):
            return [self.of(avro_type["items"], one, f"{place}[{at}]") for at, one in enumerate(value)]
        return {name: self.of(avro_type["values"], one, f"{place}.{name}") for name, one in value.items()}

    def _of_union(self, branches: list[AvroType], value: Any, place: str) -> Any:
        reasons = []
        for branch in branches:
            try:
                converted = self.of(branch, value, place)
            except SchemaError as error:
                if self._left < 0:
                    raise
                reasons.append(str(error))
                continue
            name = branch if isinstance(branch, str) else branch.get("name")
            # Name the branch, so that fastavro does not choose a similar branch.
            return (name, converted) if name in self._names else converted
        raise SchemaError(reasons[-1] if reasons else f"an empty union{_at(place)}")

    def _of_record(self, record: AvroType, value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(place, value, f"record {record['name']}")
        fields = {field["name"]: field for field in record["fields"]}
        unknown = value.keys() - fields.keys()
        if unknown:
            raise SchemaError(f"record {record['name']} has no field {min(unknown)!r:.60}{_at(place)}")
        converted = {}
        for name, field in fields.items():
            if name in value:
                converted[name] = self.of(field["type"], value[name], f"{place}.{name}")
            elif (
                "default" in field
            ):  # fastavro would expand defaults within defaults, whose number doubles with each level.
                converted[name] = self.of(field["type"], field["default"], f"{place}.{name}")
            else:
                raise SchemaError(f"field {name!r:.60} is missing, and has no default{_at(place)}")
        return converted


def _primitive(kind: str, value: Any, place: str) -> Any:
    if kind == "null" and value is None:
        return None
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind in _INTEGERS and type(value) is int and -_INTEGERS[kind] <= value < _INTEGERS[kind]:
        return value
    if kind in ("float", "double"):
        if type(value) in (int, float):
            return float(value)
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
    if kind == "string" and isinstance(value, str):
        return value
    raise _misfit(place, value, kind)


def _octets(avro_type: AvroType, value: Any, place: str) -> Any:
    if not isinstance(value, str):
        raise _misfit(place, value, "string")
    if isinstance(avro_type, dict) and avro_type.get("logicalType") == LOGICAL_TYPE:
        try:
            return decimal_bytes(value, avro_type)
        except SchemaError as error:
            raise SchemaError(f"{error}{_at(place)}") from None
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError:
        raise _misfit(place, value, "bytes value (characters U+0000 to U+00FF)") from None
    if isinstance(avro_type, dict) and avro_type["type"] == "fixed" and len(data) != avro_type["size"]:
        raise _misfit(place, value, f"value of {avro_type['size']} bytes")
    return data


def _misfit(place: str, value: Any, wanted: str) -> SchemaError:
    return SchemaError(f"{value!r:.60} is not a valid {wanted}{_at(place)}")


def _at(place: str) -> str:
    return f", at {place:.200}" if place else ""
