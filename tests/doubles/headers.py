"""Rows of batch headers in the form in which a scan returns them, for batches that tests invent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from topicfs.storage.codec.headers import Batches, BatchHeader


def headers(batches: Iterable[Mapping[str, int]]) -> Batches:
    """Return one row for each of `batches`, a mapping of BatchHeader's field names to values; other fields are 0."""
    rows = array("q")
    for fields in batches:
        rows.extend(fields.get(name, 0) for name in BatchHeader._fields)
    return Batches(memoryview(rows), 0)
