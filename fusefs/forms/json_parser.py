"""Parses the lines that `log.json` accepts into records.

It accepts everything that `json_lines` prints: `ts` (ms; by default the current time), `key`, `payload`, `headers`
and their base64 variants. `topic`, `partition`, `offset`, `tstype` and `broker` are ignored, so that the output of
kcat and of `log.json` can be appended again. A line with any other field is refused, and so is a line without
`payload`, because a typing error must not become an empty record. A null payload is a tombstone.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from typing import Any, Never, TypeAlias

from topicfs.fusefs.forms.form import FormError
from topicfs.storage.model import Buffer, Header, Offset, Record, Timestamp

IGNORED = frozenset({"topic", "partition", "offset", "tstype", "broker"})
TAKEN = frozenset({"ts", "key", "key_base64", "payload", "payload_base64", "headers", "headers_base64"})

_INT64_END = 2**63


Octets: TypeAlias = Callable[[dict[str, Any], str], bytes | None]
"""Returns the key or payload from a line's fields. Raises RefusedLineError."""


class RefusedLineError(Exception):
    """The reason why a line is refused, without the line's number."""


def parse_records(
    text: Buffer, timestamp: int, octets: Octets | None = None, ignored: frozenset[str] = IGNORED
) -> list[Record]:
    """Return one record per line, with offsets from 0; `timestamp` is for lines without `ts`.

    `octets` converts key and payload; fields named in `ignored` are ignored.

    Raises FormError naming the first bad line, ValueError if the last line has no LF.
    """
    lines = bytes(text).split(b"\n")
    if lines.pop():
        raise ValueError("the last line has no LF")
    records = []
    for index, line in enumerate(lines):
        try:
            fields = _fields(line, ignored)
            records.append(_record(fields, Offset(index), timestamp, octets or plain_octets))
        except RefusedLineError as error:
            raise FormError(index + 1, str(error)) from None
    return records


def _record(fields: dict[str, Any], offset: Offset, timestamp: int, octets: Octets) -> Record:
    time = fields.get("ts", timestamp)
    if type(time) is not int or not -_INT64_END <= time < _INT64_END:
        raise RefusedLineError("ts is not a 64-bit integer")
    if "payload" not in fields and "payload_base64" not in fields:
        raise RefusedLineError("payload is missing (write null for a tombstone)")
    return Record(offset, Timestamp(time), octets(fields, "key"), octets(fields, "payload"), _headers(fields))


def _fields(line: bytes, ignored: frozenset[str]) -> dict[str, Any]:
    """Parse a line to an object, and check that all its fields are known."""
    try:
        value = _DECODER.decode(line.decode())
    except UnicodeDecodeError:
        raise RefusedLineError("not UTF-8") from None
    except RecursionError:
        raise RefusedLineError("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise RefusedLineError(f"not JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise RefusedLineError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RefusedLineError("not a JSON object")
    unknown = value.keys() - TAKEN - ignored
    if unknown:
        raise RefusedLineError(f"unknown field {min(unknown)!r}; fields are {', '.join(sorted(TAKEN))}")
    return value


def _no_constant(name: str) -> Never:
    """Refuse NaN and Infinity, which Python's parser accepts."""
    raise ValueError(f"{name} is not allowed")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def plain_octets(fields: dict[str, Any], name: str) -> bytes | None:
    """Return a key or payload, plain or in base64; None for null, and for a missing key."""
    if f"{name}_base64" in fields:
        if name in fields:
            raise RefusedLineError(f"{name} is present twice, plain and in base64")
        return _from_base64(fields[f"{name}_base64"], f"{name}_base64")
    return _from_text(fields.get(name), name)


def _headers(fields: dict[str, Any]) -> tuple[Header, ...]:
    if "headers" in fields and "headers_base64" in fields:
        raise RefusedLineError("headers are present twice, plain and in base64")
    name = "headers_base64" if "headers_base64" in fields else "headers"
    flat = fields.get(name, [])
    if not isinstance(flat, list) or len(flat) % 2:
        raise RefusedLineError(f"{name} is not an array of alternating names and values")
    value_of = _from_base64 if name == "headers_base64" else _from_text
    return tuple(
        Header(
            _encoded(flat[at], "a header's name", "surrogateescape"),
            value_of(flat[at + 1], f"a value of {name}"),
        )
        for at in range(0, len(flat), 2)
    )


def _encoded(value: object, name: str, errors: str = "strict") -> bytes:
    if not isinstance(value, str):
        raise RefusedLineError(f"{name} is not a string")
    try:
        return value.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise RefusedLineError(f"{name} holds half a surrogate pair") from None


def _from_text(value: object, name: str) -> bytes | None:
    return None if value is None else _encoded(value, name)


def _from_base64(value: object, name: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise RefusedLineError(f"{name} is not a string")
    try:
        return binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise RefusedLineError(f"{name} is not base64: {error}") from None
