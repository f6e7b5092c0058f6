r"""Java's properties format, in which `server.properties` and `meta.properties` are written.

    # comment                   also with !; blanks may precede it
    name=value                  or name:value, or name value; blanks around the separator are dropped
    name=first \
         second                 an odd number of backslashes continues a line; leading blanks are dropped
    a\ b=\u00e9\t               \t \n \r \f \uXXXX; before any other character the backslash is dropped

The bytes are read as ISO 8859-1, as by Kafka, and written as ASCII with escapes. If several lines have the same name,
the last line counts.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from topicfs.storage.model import Timestamp

_BLANKS = " \t\f"
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_ESCAPES = {character: "\\" + name for name, character in _NAMED_ESCAPES.items()} | {"\\": "\\\\"}
_NATURAL_LINE = re.compile(r"\r\n|\n|\r")
_NAME = re.compile(r"(?:[^\\ \t\f=:]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class PropertiesError(ValueError):
    """A malformed escape."""


def parse_properties(data: bytes) -> dict[str, str]:
    """Parse a file's bytes; raises PropertiesError."""
    values = {}
    for line in _logical_lines(data.decode("iso-8859-1")):
        name = _NAME.match(line)
        separator = _SEPARATOR.match(line, name.end() if name else 0)
        assert name is not None, "the pattern matches nothing at all, too"
        assert separator is not None, "the pattern matches nothing at all, too"
        values[_unescape(name.group())] = _unescape(line[separator.end() :])
    return values


def format_properties(
    values: Mapping[str, str], *, comment: str | None = None, written_at: Timestamp | None = None
) -> bytes:
    """Return a file's bytes: a comment line, a line with the time (UTC), and one line per value."""
    lines = [] if comment is None else ["#" + comment]
    if written_at is not None:
        lines.append("#" + _java_date(written_at))
    for name, value in values.items():
        leading = "\\" if value.startswith(" ") else ""
        lines.append(f"{_escape(name, ' =:#!')}={leading}{_escape(value, '=:#!')}")
    return "".join(line + "\n" for line in lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments and blank lines, joined if continued, and without leading blanks."""
    joined: str | None = None
    for natural in _NATURAL_LINE.split(text):
        line = natural.lstrip(_BLANKS)
        if joined is None and (not line or line[0] in "#!"):
            continue
        joined = line if joined is None else joined + line
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            joined = joined[:-1]
            continue
        yield joined
        joined = None
    if joined:
        yield joined


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    unescaped = _ESCAPE.sub(_unescape_one, text)
    if any("\ud800" <= character <= "\udfff" for character in unescaped):
        unescaped = _join_surrogates(unescaped)
    return unescaped


def _unescape_one(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape == "u":
        raise PropertiesError(f"malformed \\u escape in {reprlib.repr(match.string)}")
    return _NAMED_ESCAPES.get(escape, escape)


def _join_surrogates(text: str) -> str:
    """Join two Unicode escapes that are the UTF-16 halves of one character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise PropertiesError(f"half a surrogate pair in {reprlib.repr(text)}") from None


def _escape(text: str, special: str) -> str:
    return "".join("\\" + one if one in special else _escape_character(one) for one in text)


def _escape_character(character: str) -> str:
    if character in _WRITTEN_ESCAPES:
        return _WRITTEN_ESCAPES[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def _java_date(time: Timestamp) -> str:
    """Format a time as java.util.Date does, in English in every locale: `Sat Nov 21 04:03:27 UTC 2026`."""
    moment = datetime.fromtimestamp(time / 1000, UTC)
    return f"{moment.ctime()[:7]} {moment:%d %H:%M:%S} UTC {moment.year}"
