"""Kafka's message schemas: the fields of a message, by version.

    plain version      string int16 length + UTF-8 (-1 null) · bytes, array int32 length or count (-1 null)
    flexible version   string, bytes, array: unsigned varint of length + 1 (0 null); a section of tagged fields ends
                       every structure: varint count, then {varint tag, varint size, content} by ascending tag
    both               a structure that may be null: int8 -1 null, or 1 and the structure

A message on disk begins with its int16 version. `Schema.read` returns a plain dict by Kafka's field names (its JSON
form, except for bytes), and `Schema.write` takes one; missing fields get their defaults. Tagged fields are written if
they differ from their default, and unknown tags are skipped on reading (kafka-coordinators.md#message-schemas).

`parse_fields` parses fields in this notation:

    offset int64, host string?, epoch int32 =-1, topics [name string 0-12, id uuid 13+]?, nodes [int32], leader {id int32} @1

`13+` and `0-12` are the versions that have a field. `?` means that it may be null, `?12+` from version 12 on. `[…]`
is an array of one type or of structures, `{…}` a structure, `@1` the number of a tagged field, and `=-1` or `=null` a
default that differs from the type's.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Buffer

Values: TypeAlias = dict[str, Any]

NEWEST = 32767
MAX_STRUCTURES = 1 << 20
"""Largest number of structures in a message's arrays: each takes some hundred bytes, but only three on the wire."""
PLAIN_ITEMS_PER_STRUCTURE = 8
"""The limit for numbers and texts in a message's arrays, as a multiple of the limit for structures. An empty text
takes one byte on the wire, but eight in memory; a number takes up to 36.
"""

_NUMBERS = {
    kind: struct.Struct(code)
    for kind, code in {"bool": ">?", "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}.items()
}
_DEFAULTS: Mapping[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": uuid.UUID(int=0),
    "array": [],
}


class Field(NamedTuple):
    """One field: `kind` is a type, `array` (of the type or structure `of`), or `structure` (of the fields `of`).

    If `kind` is `records`, a reader gets a view of the bytes, and a writer does not copy them.
    """

    name: str
    kind: str
    of: str | tuple[Field, ...] = ""
    since: int = 0
    until: int = NEWEST
    nullable_since: int | None = None
    tag: int | None = None
    default: Any = ...
    """`...` stands for the default of the type."""

    def default_value(self) -> Any:
        """Return the value that the field has if none is given."""
        return _DEFAULTS.get(self.kind) if self.default is ... else self.default

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def may_be_null(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


class Schema(NamedTuple):
    """A message: its fields, its versions, and the first version that is flexible."""

    name: str
    fields: tuple[Field, ...]
    versions: range
    flexible_since: int = NEWEST
    prefix: int | None = None
    """A record type that is stored before the fields, in place of a version (keys of coordinator topics)."""

    def read(
        self,
        data: bytes | memoryview,
        version: int,
        *,
        lenient: bool = False,
        max_structures: int = MAX_STRUCTURES,
        items: Mapping[str, Callable[[Values], Any]] | None = None,
    ) -> Values:
        """Return the fields after the version. Raises CorruptBatchError if the bytes are not such a message.

        `lenient` accepts, like Kafka's tools, remaining bytes and text that is not UTF-8. `items` maps names of
        arrays to functions that replace each item as it is read, to save memory. All arrays together may have
        `max_structures` structures, and eight times as many numbers and texts.
        """
        reader = _Reader(memoryview(data), flexible=version >= self.flexible_since, lenient=lenient)
        reader.items, reader.max_structures = items or {}, max_structures
        values = reader.structure(self.fields, version)
        if reader.at != len(data) and not lenient:
            raise CorruptBatchError(
                reader.at, f"{len(data) - reader.at} bytes are left over after {self.name}"
            )
        return values

    def read_before(self, name: str, data: bytes | memoryview, version: int) -> tuple[Values, int]:
        """Return the fields before the field `name`, and the position of that field. Raises CorruptBatchError."""
        reader = _Reader(memoryview(data), flexible=version >= self.flexible_since, lenient=False)
        fields = tuple(takewhile(lambda each: each.name != name, self.fields))
        return reader.members(fields, version), reader.at

    def write(self, values: Mapping[str, Any], version: int) -> bytes:
        """Return the bytes of the fields, without the version. Raises KeyError for an unknown name."""
        return b"".join(self.write_in_pieces(values, version))

    def write_in_pieces(self, values: Mapping[str, Any], version: int) -> list[Buffer]:
        """Like `write`, but return pieces. Fields of kind `records` are separate pieces and not copied."""
        unknown = set(values) - {f.name for f in self.fields}
        if unknown:
            raise KeyError(f"{self.name} has no field {min(unknown)}")
        writer = _Writer(flexible=version >= self.flexible_since)
        writer.structure(self.fields, values, version)
        return [*writer.pieces, writer.out]


_TOKEN = re.compile(r"[\[\]{},]|\?(?:\d+\+)?|[^\s\[\]{},?]+")
_VERSIONS = re.compile(r"(\d+)(?:\+|-(\d+))")


def parse_fields(text: str) -> tuple[Field, ...]:
    """Parse the fields of a structure."""
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
    word = tokens.pop(0)
    if word == "{":
        return Field(name=name, kind="structure", of=_fields(tokens))
    if word != "[":
        return Field(name=name, kind=word)
    if tokens[1] == "]":
        kind, _ = tokens.pop(0), tokens.pop(0)
        return Field(name=name, kind="array", of=kind)
    return Field(name=name, kind="array", of=_fields(tokens))


def _qualified(field: Field, word: str) -> Field:
    if word.startswith("?"):
        return field._replace(nullable_since=int(word[1:-1] or 0))
    if word.startswith("@"):
        return field._replace(tag=int(word[1:]))
    if word.startswith("="):
        return field._replace(default=None if word == "=null" else int(word[1:]))
    found = _VERSIONS.fullmatch(word)
    assert found is not None, word
    return field._replace(since=int(found[1]), until=int(found[2] or NEWEST))


class _Reader:
    def __init__(self, data: memoryview, *, flexible: bool, lenient: bool) -> None:
        self._data = data
        self._flexible = flexible
        self._text_errors = "replace" if lenient else "strict"
        self.at = 0
        self.items: Mapping[str, Callable[[Values], Any]] = {}
        self.max_structures = MAX_STRUCTURES
        self._structures = self._plain_items = 0

    def structure(self, fields: tuple[Field, ...], version: int) -> Values:
        values = self.members(fields, version)
        if self._flexible:
            self._tagged(fields, values, version)
        return values

    def members(self, fields: tuple[Field, ...], version: int) -> Values:
        """Return the fields of a structure; tagged fields have their defaults until `_tagged` reads them."""
        values: Values = {}
        for each in fields:
            if not each.in_version(version):
                continue
            values[each.name] = each.default_value() if each.tag is not None else self._value(each, version)
        return values

    def _tagged(self, fields: tuple[Field, ...], values: Values, version: int) -> None:
        count = self._unsigned_varint()
        if not count:  # This is the usual case.
            return
        by_tag = {f.tag: f for f in fields if f.tag is not None and f.in_version(version)}
        for _ in range(count):
            tag, size = self._unsigned_varint(), self._unsigned_varint()
            end = self.at + size
            known = by_tag.get(tag)
            if known is None:
                self._take(size)
                continue
            values[known.name] = self._value(known, version)
            if self.at != end:
                raise CorruptBatchError(self.at, f"tagged field {known.name} does not fill its {size} bytes")

    def _value(self, each: Field, version: int) -> Any:
        if each.kind == "array":
            value = self._array(each, version)
        elif each.kind == "structure" and each.may_be_null(version) and self._item("int8", version) < 0:
            return None
        else:
            value = self._item(each.of if each.kind == "structure" else each.kind, version)
        if value is None and not each.may_be_null(version):
            raise CorruptBatchError(self.at, f"non-nullable field {each.name} was serialized as null")
        return value

    def _array(self, each: Field, version: int) -> list[Any] | None:
        count = self._length(wide=True)
        if count is None:
            return None
        if isinstance(each.of, tuple):
            self._structures += count
            if self._structures > self.max_structures:
                raise CorruptBatchError(
                    self.at, f"more than {self.max_structures:,} structures in one message"
                )
            if make := self.items.get(each.name):
                return [make(self.structure(each.of, version)) for _ in range(count)]
            return [self.structure(each.of, version) for _ in range(count)]
        self._plain_items += count
        most = PLAIN_ITEMS_PER_STRUCTURE * self.max_structures
        if self._plain_items > most:
            raise CorruptBatchError(
                self.at, f"more than {most:,} numbers and texts in the arrays of one message"
            )
        found = [self._item(each.of, version) for _ in range(count)]
        if each.of in ("string", "bytes") and None in found:
            raise CorruptBatchError(self.at, f"an item of {each.name} was serialized as null")
        return found

    def _item(self, kind: str | tuple[Field, ...], version: int) -> Any:
        if isinstance(kind, tuple):
            return self.structure(kind, version)
        number = _NUMBERS.get(kind)
        if number is not None:
            at, self.at = self.at, self.at + number.size
            if self.at > len(self._data):
                raise CorruptBatchError(at, "the message ends too early")
            return number.unpack_from(self._data, at)[0]
        if kind == "uuid":
            return uuid.UUID(bytes=bytes(self._take(16)))
        length = self._length(wide=kind != "string")
        if length is None:
            return None
        if kind == "records":
            return self._take(length)
        content = bytes(self._take(length))
        return content if kind == "bytes" else self._text(content)

    def _text(self, content: bytes) -> str:
        try:
            return content.decode(errors=self._text_errors)
        except UnicodeDecodeError as error:
            raise CorruptBatchError(self.at - len(content), "a string is not UTF-8") from error

    def _length(self, *, wide: bool) -> int | None:
        if self._flexible:
            length = self._unsigned_varint() - 1
        else:
            code = ">i" if wide else ">h"
            length = struct.unpack(code, self._take(struct.calcsize(code)))[0]
        if length > len(self._data) - self.at:
            raise CorruptBatchError(self.at, f"a length of {length} overruns the message")
        return None if length < 0 else length

    def _unsigned_varint(self) -> int:
        at, value, shift = self.at, 0, 0
        if at < len(self._data) and self._data[at] < 0x80:
            self.at = at + 1
            return self._data[at]
        while shift <= 28:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise CorruptBatchError(self.at, "a varint is longer than five bytes")

    def _take(self, size: int) -> memoryview:
        if size > len(self._data) - self.at:
            raise CorruptBatchError(self.at, "the message ends too early")
        taken = self._data[self.at : self.at + size]
        self.at += size
        return taken


class _Writer:
    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self.pieces: list[Buffer] = []
        """The completed pieces."""
        self.out = bytearray()
        """The bytes after the completed pieces."""

    def structure(self, fields: tuple[Field, ...], values: Mapping[str, Any], version: int) -> None:
        tagged: list[tuple[int, bytes]] = []
        for each in fields:
            if not each.in_version(version):
                continue
            value = values.get(each.name, each.default_value())
            if each.tag is None:
                self._value(each, value, version)
            elif value != each.default_value():
                inner = _Writer(flexible=self._flexible)
                inner._value(each, value, version)
                tagged.append((each.tag, b"".join((*inner.pieces, inner.out))))
        if self._flexible:
            self._tagged(sorted(tagged))

    def _tagged(self, tagged: list[tuple[int, bytes]]) -> None:
        self._unsigned_varint(len(tagged))
        for tag, content in tagged:
            self._unsigned_varint(tag)
            self._unsigned_varint(len(content))
            self.out += content

    def _value(self, each: Field, value: Any, version: int) -> None:
        if value is None and not each.may_be_null(version):
            raise ValueError(f"{each.name} may not be null in version {version}")
        if each.kind != "array":
            if each.kind == "structure" and each.may_be_null(version):
                self.out.append(0xFF if value is None else 1)
                if value is None:
                    return
            self._item(each.of if each.kind == "structure" else each.kind, value, version)
            return
        self._length(None if value is None else len(value), wide=True)
        for item in value or ():
            self._item(each.of, item, version)

    def _item(self, kind: str | tuple[Field, ...], value: Any, version: int) -> None:
        if isinstance(kind, tuple):
            self.structure(kind, value, version)
        elif kind in _NUMBERS:
            self.out += _NUMBERS[kind].pack(value)
        elif kind == "uuid":
            self.out += value.bytes
        else:
            content = value.encode() if isinstance(value, str) else value
            self._length(None if content is None else len(content), wide=kind != "string")
            if kind == "records" and content:
                self.pieces += self.out, content
                self.out = bytearray()
            else:
                self.out += content or b""

    def _length(self, length: int | None, *, wide: bool) -> None:
        value = -1 if length is None else length
        if self._flexible:
            self._unsigned_varint(value + 1)
        else:
            self.out += struct.pack(">i" if wide else ">h", value)

    def _unsigned_varint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)
