"""Headers of batches without the batches: rows as a scan gives them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from topicfs.storage.codec.headers import Batches, BatchHeader


def headers(batches: Iterable[Mapping[str, int]]) -> Batches:
    """One row for each, by the names of BatchHeader's fields; what is not named is 0."""
    rows = array("q")
    for fields in batches:
        rows.extend(fields.get(name, 0) for name in BatchHeader._fields)
    return Batches(memoryview(rows), 0)
