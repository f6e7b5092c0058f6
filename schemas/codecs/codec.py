"""The protocol of a codec."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from types import ModuleType
from typing import Protocol, TypeVar

from topicfs.schemas.schema import MissingLibraryError, SchemaError

T = TypeVar("T")

MAX_TEXT_BYTES = 64 * 2**20
"""Largest text of a value: as large as the content of a batch may be (`storage.codec.compression.bounds`)."""
MAX_VALUE_BYTES = 512 * 2**20
"""Maximum memory for the value of a message. If a message may need more according to its schema, it is not decoded."""


class SchemaCodec(Protocol):
    """A compiled schema. Safe from any thread."""

    def decode(self, message: bytes, path: bytes | None) -> bytes:
        """Return a message as JSON on one line, in UTF-8; `path` is `FramedMessage.path`. Raises SchemaError."""

    def encode(self, value: object) -> bytes:
        """Encode a value of JSON. The path to its type precedes a Protobuf message. Raises SchemaError."""


def check_memory(most: int) -> None:
    """Raise SchemaError if `most`, the memory that a message may need, is more than MAX_VALUE_BYTES."""
    if most > MAX_VALUE_BYTES:
        raise SchemaError(
            f"the message might take {most} bytes of memory; at most {MAX_VALUE_BYTES} are allowed"
        )


def library(name: str, package: str) -> ModuleType:
    """Import a library. Raises MissingLibraryError, which names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingLibraryError(package) from None


def guarded(make: Callable[[], T], what: str) -> T:
    """Call `make`, which gives untrusted input to a library; report any exception as a SchemaError with `what`."""
    try:
        return make()
    except (SchemaError, MissingLibraryError):
        raise
    except Exception as error:  # noqa: BLE001 - the libraries document none of what they raise for hostile input
        raise SchemaError(f"{what}: {type(error).__name__}: {error!s:.200}") from None


def json_text(value: object, *, plain: bool = False) -> bytes:
    """Return a value as JSON on one line. Raises SchemaError.

    NaN, infinities, bytes and decimals become strings, because JSON has no such values. Bytes become characters from
    U+0000 to U+00FF, as in Avro's JSON encoding. With `plain`, `value` must not contain such values.
    """
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        if plain:
            raise SchemaError("not JSON: a number that is too large") from None
        text = guarded(lambda: _ENCODER.encode(_finite(value)), "not JSON")
    except RecursionError:
        raise SchemaError("nested too deeply") from None
    if len(text) > MAX_TEXT_BYTES:
        raise SchemaError(f"the text has {len(text)} characters; at most {MAX_TEXT_BYTES} are shown")
    try:
        return text.encode()
    except UnicodeEncodeError:  # A name in the schema contains half of a surrogate pair.
        return text.encode("ascii", "backslashreplace")


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return value.decode("latin-1")
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


def _finite(value: object) -> object:
    """Return a value with NaN and infinities replaced by strings, named as in Protobuf's JSON."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 - NaN alone
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value
