"""JSON Schema: messages are JSON, which is shown as it stands, whatever its schema says."""

from __future__ import annotations

import json
from typing import Never

from schemas.codecs.codec import guarded
from schemas.schema import SchemaError


def _no_constant(name: str) -> Never:
    raise SchemaError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=str, parse_float=str)
"""Numbers stay as they are written: they are looked at, and not taken."""


def decode_json(message: bytes) -> bytes:
    """Return a message of JSON on one line, its numbers, names and order as they are. Raises SchemaError."""
    guarded(lambda: _DECODER.decode(message.decode()), "no JSON")
    # Within strings a line end is always escaped; anywhere else it is a space.
    return message.strip(b" \t\r\n").replace(b"\n", b" ").replace(b"\r", b" ")
