r"""Text by a template with the tokens of kcat 1.7.1: `%o %k %s\n`.

    %s %S %R    value; its length, -1 for null; the same as four bytes, big-endian
    %k %K       key; its length, -1 for null
    %T %h       timestamp in milliseconds, -1 for none; headers as name=value,name=value
    %t %p %o    topic, partition, offset
    \n \r \t \\ \xHH  %%

A null value or key is shown as nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TypeAlias

from topicfs.formats.records import Placed
from topicfs.storage.model import Header

Part: TypeAlias = Callable[[Placed], bytes]

_PIECE = re.compile(
    r"%(?P<token>.)|\\x(?P<code>[0-9A-Fa-f]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)|(?P<left>[%\\])", re.DOTALL
)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_LENGTH = struct.Struct(">i")
NULL = b"NULL"
"""What kcat prints for a header without a value."""


class TemplateError(ValueError):
    """A template with what is no token."""


class Template:
    """A template that was read once, and is filled for each record."""

    def __init__(self, text: str) -> None:
        """Read a template. Raises TemplateError."""
        self._parts = [_part(match) for match in _PIECE.finditer(text)]

    def fill(self, placed: Placed) -> bytes:
        """Return the text of a record."""
        return b"".join([part(placed) for part in self._parts])


def _part(match: re.Match[str]) -> Part:
    if match["text"] is not None:
        return _always(match["text"].encode())
    if match["code"] is not None:
        return _always(bytes([int(match["code"], 16)]))
    if match["escape"] is not None and match["escape"] in _ESCAPES:
        return _always(_ESCAPES[match["escape"]])
    if match["token"] is not None and match["token"] in _TOKENS:
        return _TOKENS[match["token"]]
    raise TemplateError(
        f"{match[0]}: not a token; tokens are {' '.join(f'%{name}' for name in _TOKENS)}, \\n \\r \\t \\\\ and \\xHH"
    )


def _always(octets: bytes) -> Part:
    return lambda _placed: octets


def _length(octets: bytes | None) -> int:
    return -1 if octets is None else len(octets)


def _headers(headers: tuple[Header, ...]) -> bytes:
    return b",".join(
        header.key + b"=" + (NULL if header.value is None else header.value) for header in headers
    )


_TOKENS: dict[str, Part] = {
    "s": lambda placed: placed.record.value or b"",
    "S": lambda placed: b"%d" % _length(placed.record.value),
    "R": lambda placed: _LENGTH.pack(_length(placed.record.value)),
    "k": lambda placed: placed.record.key or b"",
    "K": lambda placed: b"%d" % _length(placed.record.key),
    "T": lambda placed: b"%d" % placed.record.timestamp,
    "h": lambda placed: _headers(placed.record.headers),
    "t": lambda placed: placed.topic.encode(),
    "p": lambda placed: b"%d" % placed.partition,
    "o": lambda placed: b"%d" % placed.record.offset,
    "%": lambda _placed: b"%",
}
