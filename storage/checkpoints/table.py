"""The text table that all checkpoint files share.

    0                   version
    2                   number of rows
    orders 0 42         one row per line, its fields separated by one space
    orders 1 17

Every line ends with LF. Readers accept any run of blanks between fields. An empty file, or one with only the version,
has no rows. Anything else raises CorruptionError (kafka-storage.md#checkpoint-tables).
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from pathlib import Path

from topicfs.storage.errors import CorruptionError

VERSION = 0
_MAX_DIGITS = 20
_INTEGER = re.compile(rf"[+-]?[0-9]{{1,{_MAX_DIGITS}}}")


def encode_table(rows: Sequence[str]) -> bytes:
    """Return the file's bytes for `rows`, which are lines without line ends."""
    return "\n".join([str(VERSION), str(len(rows)), *rows, ""]).encode()


def decode_table(data: bytes, *, width: int, file: Path) -> list[list[str]]:
    """Return rows of `width` text fields. Raises CorruptionError with `file` and the position of the bad line."""
    lines = _lines(data, file)
    if not lines:
        return []
    if _number(lines, 0, file) != VERSION:
        raise CorruptionError(file, 0, f"version {lines[0][1]}, expected {VERSION}")
    if len(lines) == 1:
        return []
    expected = _number(lines, 1, file)
    rows = [_row(line, position, width, file) for position, line in lines[2:]]
    if len(rows) != expected:
        raise CorruptionError(file, lines[1][0], f"{len(rows)} rows where {expected} are declared")
    return rows


def field_number(text: str, *, file: Path) -> int:
    """Parse a decimal field. Raises CorruptionError."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS) and not _INTEGER.fullmatch(text):
        raise CorruptionError(file, 0, f"{reprlib.repr(text)} is not a number")
    return int(text)


def _lines(data: bytes, file: Path) -> list[tuple[int, str]]:
    lines = []
    position = 0
    for line in data.splitlines(keepends=True):
        try:
            lines.append((position, line.decode().rstrip("\r\n")))
        except UnicodeDecodeError:
            raise CorruptionError(file, position, "a line is not UTF-8") from None
        position += len(line)
    return lines


def _number(lines: list[tuple[int, str]], index: int, file: Path) -> int:
    position, text = lines[index]
    if not _INTEGER.fullmatch(text.strip()):
        raise CorruptionError(file, position, f"{reprlib.repr(text)} is not a number")
    return int(text)


def _row(line: str, position: int, width: int, file: Path) -> list[str]:
    fields = line.split()
    if len(fields) != width or line[:1].isspace():
        raise CorruptionError(file, position, f"{reprlib.repr(line)} does not have {width} fields")
    return fields
