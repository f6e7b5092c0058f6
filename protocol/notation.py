"""The notation in which `protocol.messages` has the fields of a message, by Kafka's own names, and a kind of request.

    offset int64, host string?, nodes [int32], topics [name string 0-12, id uuid 13+]?, leader {id int32} @1

`13+` and `0-12` are the versions that have a field, `?` says that it may be null (`?12+` since when), `[…]` is an array of one type or of
structures, `{…}` a structure, and `@1` the number of a tagged field, which may be absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from topicfs.storage.wire import NEWEST, Field, Schema

_TOKEN = re.compile(r"[\[\]{},]|\?(?:\d+\+)?|[^\s\[\]{},?]+")
_VERSIONS = re.compile(r"(\d+)(?:\+|-(\d+))")


@dataclass(frozen=True, slots=True)
class Api:
    """One kind of request."""

    key: int
    request: Schema
    response: Schema

    @property
    def name(self) -> str:
        return self.request.name

    def is_flexible(self, version: int) -> bool:
        """Return whether lengths are compact and headers have tagged fields."""
        return version >= self.request.flexible_since


def api(key: int, name: str, versions: range, *, request: str, response: str, flexible_since: int = 0) -> Api:
    """Return a kind of request by its fields, in the notation above."""

    def schema(text: str) -> Schema:
        return Schema(name=name, fields=parse_fields(text), versions=versions, flexible_since=flexible_since)

    return Api(key, schema(request), schema(response))


def parse_fields(text: str) -> tuple[Field, ...]:
    """Read the fields of a structure."""
    return _fields(_TOKEN.findall(text))


def _fields(tokens: list[str]) -> tuple[Field, ...]:
    """Take fields from the front of `tokens`, and the bracket that closes them."""
    fields = []
    while tokens:
        name = tokens.pop(0)
        if name in "]}":
            break
        field = _field(name, tokens)
        while tokens and tokens[0] not in ",]}":
            field = _qualified(field, tokens.pop(0))
        if tokens and tokens[0] == ",":
            tokens.pop(0)
        fields.append(field)
    return tuple(fields)


def _field(name: str, tokens: list[str]) -> Field:
    token = tokens.pop(0)
    if token == "{":  # noqa: S105 (no password)
        return Field(name=name, kind="structure", of=_fields(tokens))
    if token != "[":  # noqa: S105 (as above)
        return Field(name=name, kind=token)
    if tokens[1] == "]":
        kind, _ = tokens.pop(0), tokens.pop(0)
        return Field(name=name, kind="array", of=kind)
    return Field(name=name, kind="array", of=_fields(tokens))


def _qualified(field: Field, token: str) -> Field:
    if token.startswith("?"):
        return replace(field, nullable_since=int(token[1:-1] or 0))
    if token.startswith("@"):
        return replace(field, tag=int(token[1:]), default=None, has_default=True)
    found = _VERSIONS.fullmatch(token)
    assert found is not None, token
    return replace(field, since=int(found[1]), until=int(found[2] or NEWEST))
