"""Rows for spreadsheets: a header line, then a record a row.

Times are those of the calendar, in UTC; headers are a JSON list of names and values, as `log.json` has them. A null key or
value is an empty field, as an empty one is. Bytes that are no UTF-8 stay as they are.
"""

from __future__ import annotations

import csv
import io

from topicfs.formats.records import Placed
from topicfs.fusefs.times import written
from topicfs.fusefs.views.records import headers_json
from topicfs.storage.model import NO_TIMESTAMP

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class CsvRows:
    """Writes rows into a buffer that is used again."""

    def __init__(self) -> None:
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer, lineterminator="\n")

    def header(self) -> bytes:
        """Return the line of the columns' names."""
        return self._row(COLUMNS)

    def fill(self, placed: Placed) -> bytes:
        """Return the row of a record; it has more lines where a value has."""
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
