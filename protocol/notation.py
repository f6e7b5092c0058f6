"""A kind of request: its number, and the fields of the request and of its answer, in the notation of `storage.wire`."""

from __future__ import annotations

from typing import NamedTuple

from topicfs.storage.wire import Schema, parse_fields


class Api(NamedTuple):
    """One kind of request with its answer."""

    key: int
    request: Schema
    response: Schema
    asked_since: int = 0
    """The oldest version that a client of this project uses. A server also reads older versions."""

    asked_before: int | None = None
    """The oldest version that is too new for a client of this project. None: a client uses the newest version."""

    def asked_from(self, version: int, *, before: int | None = None) -> Api:
        """Return a copy for a client that uses no version below `version`, and none from `before` on."""
        return self._replace(asked_since=version, asked_before=before)

    @property
    def asked_versions(self) -> range:
        """The versions that a client uses."""
        oldest, stop = self.request.versions[0], self.request.versions.stop
        return range(self.asked_since or oldest, self.asked_before or stop)

    @property
    def name(self) -> str:
        return self.request.name

    def is_flexible(self, version: int) -> bool:
        """Return whether headers of this version have compact lengths and tagged fields."""
        return version >= self.request.flexible_since


def api(key: int, name: str, versions: range, *, request: str, response: str, flexible_since: int = 0) -> Api:
    """Return a kind of request with the given fields, which are in the notation of `storage.wire`."""

    def schema(text: str) -> Schema:
        return Schema(name=name, fields=parse_fields(text), versions=versions, flexible_since=flexible_since)

    return Api(key, schema(request), schema(response))
