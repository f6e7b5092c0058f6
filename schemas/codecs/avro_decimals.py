"""Decimals of Avro: an integer in two's complement; the schema gives the number of digits after the point.

fastavro's own reader takes minutes for a decimal of 1 MiB, and its writer rounds a decimal with too many digits. So
this module registers its own logical type for decimals.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from topicfs.schemas.codecs.codec import library
from topicfs.schemas.schema import SchemaError

LOGICAL_TYPE = "topicfs-decimal"
MAX_PRECISION = 1000
"""Maximum number of digits of a type that is read as a decimal. Values of a type with more digits are shown as bytes."""
MAX_BYTES = 420
"""Number of bytes that can hold MAX_PRECISION digits."""


def make_known() -> None:
    """Register the logical type with both readers of fastavro; they then return digits. Raises MissingLibraryError."""
    for name in ("fastavro.read", "fastavro._read_py"):
        readers: dict[str, Any] = library(name, "fastavro").LOGICAL_READERS
        for kind in ("bytes", "fixed"):
            readers[f"{kind}-{LOGICAL_TYPE}"] = _digits


def decimal_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of our decimal type for a type with the attributes `said`; {} if it is no valid decimal."""
    precision, scale = said.get("precision"), said.get("scale", 0)
    if said.get("logicalType") != "decimal" or type(precision) is not int or type(scale) is not int:
        return {}
    if not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        return {}
    return {"logicalType": LOGICAL_TYPE, "precision": precision, "scale": scale}


def _digits(data: bytes, writer_schema: Mapping[str, Any], *_: object) -> str:
    """Return a decimal as text. Raises SchemaError if it has too many bytes."""
    if len(data) > MAX_BYTES:
        raise SchemaError(f"a decimal of {len(data)} bytes; at most {MAX_BYTES} are read")
    number = Decimal(int.from_bytes(data, "big", signed=True))
    sign, digits, _exponent = number.as_tuple()
    return format(Decimal((sign, digits, -writer_schema["scale"])), "f")


def decimal_bytes(text: str, avro_type: Mapping[str, Any]) -> bytes:
    """Return the bytes of a decimal given as text. Raises SchemaError if the decimal does not fit the type."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise SchemaError(f"{text!r:.60} is not a decimal") from None
    scale, precision = avro_type["scale"], avro_type["precision"]
    if not number.is_finite():
        raise SchemaError(f"{text!r:.60} is not a decimal")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number and number.adjusted() + 1 + scale > precision:
        raise SchemaError(f"{text!r:.60} has more than {precision} digits, {scale} of them after the point")
    if number and exponent < -scale:
        raise SchemaError(f"{text!r:.60} has more than {scale} digits after the point")
    unscaled = 0
    if number:
        unscaled = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
    if avro_type["type"] == "fixed":
        try:
            return unscaled.to_bytes(avro_type["size"], "big", signed=True)
        except OverflowError:
            raise SchemaError(f"{text!r:.60} takes more than {avro_type['size']} bytes") from None
    return unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
