"""The formats of `topicfs cat --format`: chooses a format by the option's value, and prints records in it."""

from __future__ import annotations

import csv
import io
import re
import struct
from collections.abc import Callable
from typing import BinaryIO, Protocol, TypeAlias

import click

from topicfs.coordination.engine import Engine
from topicfs.formats.arrow_batches import ArrowBatches, ArrowMissingError, arrow_stream, parquet
from topicfs.formats.records import Placed, Ranges, merged, ranges_of, record_slices
from topicfs.fusefs.selectors import SelectorError
from topicfs.fusefs.times import written
from topicfs.fusefs.views.records import headers_json
from topicfs.paths import parse_path
from topicfs.storage.model import NO_TIMESTAMP, Header, Isolation, Offset

Part: TypeAlias = Callable[[Placed], bytes]

_PIECE = re.compile(
    r"%(?P<token>.)|\\x(?P<code>[0-9A-Fa-f]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)|(?P<left>[%\\])", re.DOTALL
)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_LENGTH = struct.Struct(">i")
NULL = b"NULL"
"""What kcat prints for a header without a value."""


class TemplateError(ValueError):
    """The template contains an invalid token."""


class Template:
    r"""A template with the tokens of kcat 1.7.1, such as `%o %k %s\n`, filled in for each record.

        %s %S %R          value; its length, -1 for null; the same as four bytes, big-endian
        %k %K             key; its length, -1 for null
        %T %h             timestamp in milliseconds, -1 for none; headers as name=value,name=value
        %t %p %o          topic, partition, offset
        \n \r \t \\ \xHH %%

    Nothing is printed for a null value or key.
    """

    def __init__(self, text: str) -> None:
        self._parts = [_part(match) for match in _PIECE.finditer(text)]

    def fill(self, placed: Placed) -> bytes:
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

CSV, ARROW, PARQUET = "csv", "arrow", "parquet"


class FormatPrinter(Protocol):
    """Prints the records of paths, one path after the other, in one format."""

    def show(self, engine: Engine, path: str) -> Offset | None:
        """Print a path's records; return the offset after them, or None. Raises StorageError, ClickException."""

    def flush(self) -> None:
        """Write all buffered output."""

    def end(self) -> None:
        """Complete the output."""


def printer_of(text: str, output: BinaryIO, isolation: Isolation) -> FormatPrinter:
    """Return the printer of a format. Raises BadParameter; ClickException for a missing library or a terminal."""
    if text in (ARROW, PARQUET):
        if output.isatty():
            raise click.UsageError(f"--format {text} is not for a terminal; redirect it to a file or a pipe")
        try:
            return ColumnPrinter((arrow_stream if text == ARROW else parquet)(output), isolation)
        except ArrowMissingError as error:
            raise click.ClickException(f"--format {text}: {error}") from None
    if text == CSV:
        rows = CsvRows()
        return TextPrinter(output, rows.fill, isolation, header=rows.header())
    if "%" not in text:
        raise click.BadParameter(
            f"{text!r}: write csv, arrow, parquet, or a text with tokens, such as '%o %k %s\\n'",
            param_hint="'--format'",
        )
    try:
        return TextPrinter(output, Template(text).fill, isolation)
    except TemplateError as error:
        raise click.BadParameter(str(error), param_hint="'--format'") from None


class TextPrinter:
    """Prints the text of each record; a topic's partitions are merged by time."""

    def __init__(
        self, output: BinaryIO, fill: Callable[[Placed], bytes], isolation: Isolation, header: bytes = b""
    ) -> None:
        self._output, self._fill, self._isolation = output, fill, isolation
        output.write(header)

    def show(self, engine: Engine, path: str) -> Offset | None:
        found = _found(engine, path, self._isolation)
        for placed in merged(found.ranges, self._isolation):
            self._output.write(self._fill(placed))
        return found.grows_at

    def flush(self) -> None:
        self._output.flush()

    def end(self) -> None:
        self._output.flush()


class ColumnPrinter:
    """Prints columns of records, one partition of a topic after another."""

    def __init__(self, batches: ArrowBatches, isolation: Isolation) -> None:
        self._batches, self._isolation = batches, isolation

    def show(self, engine: Engine, path: str) -> Offset | None:
        found = _found(engine, path, self._isolation)
        for wanted in found.ranges:
            for records in record_slices(wanted, self._isolation):
                self._batches.add(records)
        return found.grows_at

    def flush(self) -> None:
        self._batches.flush()

    def end(self) -> None:
        self._batches.end()


def _found(engine: Engine, path: str, isolation: Isolation) -> Ranges:
    try:
        return ranges_of(engine, parse_path(path), isolation)
    except SelectorError as error:
        raise click.ClickException(f"{path}: {error}") from None


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class CsvRows:
    """Writes rows into a reused buffer."""

    def __init__(self) -> None:
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer, lineterminator="\n")

    def header(self) -> bytes:
        """Return the line of the columns' names."""
        return self._row(COLUMNS)

    def fill(self, placed: Placed) -> bytes:
        record = placed.record
        moment = "" if record.timestamp == NO_TIMESTAMP else written(record.timestamp)
        headers = headers_json(record.headers) if record.headers else ""
        return self._row(
            (
                placed.topic,
                placed.partition,
                record.offset,
                moment,
                _text(record.key),
                _text(record.value),
                headers,
            )
        )

    def _row(self, fields: tuple[str | int, ...]) -> bytes:
        self._buffer.seek(0)
        self._buffer.truncate()
        self._writer.writerow(fields)
        return self._buffer.getvalue().encode(errors="surrogateescape")


def _text(octets: bytes | None) -> str:
    return "" if octets is None else octets.decode(errors="surrogateescape")
