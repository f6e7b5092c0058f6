"""Headers of batches without the batches, in the rows that a scan returns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from topicfs.storage.codec.headers import Batches, BatchHeader


def headers(batches: Iterable[Mapping[str, int]]) -> Batches:
    """Return one row for each of `batches`, which has values by names of BatchHeader's fields; other fields are 0."""
    rows = array("q")
    for fields in batches:
        rows.extend(fields.get(name, 0) for name in BatchHeader._fields)
    return Batches(memoryview(rows), 0)
