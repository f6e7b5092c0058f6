"""The record of committed micro-batches: one small file of a data directory, replaced atomically by its owner.

    topicfs.writes:  {"version": 1, "queries": {QUERY@TOPIC_ID: {"batch": 41, "producer_id": …, "epoch": 41,
                                                                 "records": {"orders": 50}}}}

The topic is that which the query writes to, by id: a query that writes elsewhere, or to a topic created again, has committed
nothing there. Where each row says its topic there is the query alone. A query's micro-batches are committed in order, so its
last one says all. Entries of before there were targets have no records either, and count for every target of their query
until one has an entry of its own. A broker passes the file over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from storage.checkpoints.atomic import write_atomically
from storage.disk import names
from storage.disk.filesystem import FileSystem
from storage.disk.names import WriteId
from storage.errors import CorruptionError
from storage.model import ProducerId

VERSION = 1


class CommittedQuery(NamedTuple):
    """The progress of a query."""

    batch: int
    """The last one committed; all before it are, too."""
    producer_id: ProducerId
    epoch: int
    """Producer epoch of the last one."""
    records: Mapping[str, int] | None = None
    """Number of records of the last one, by topic; None: not noted."""


def read_committed(directory: Path, files: FileSystem) -> Mapping[str, CommittedQuery]:
    """Return the committed queries by query and target (`WriteId.series`); a missing file has none. Raises CorruptionError, OSError."""
    path = directory / names.COMMITTED_WRITES
    if not files.exists(path):
        return {}
    try:
        content = json.loads(files.read_bytes(path))
        if content["version"] != VERSION:
            raise CorruptionError(path, 0, f"version {content['version']}, expected {VERSION}")
        return {
            query: CommittedQuery(
                int(one["batch"]), ProducerId(int(one["producer_id"])), int(one["epoch"]), _records(one)
            )
            for query, one in content["queries"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(path, 0, f"no record of committed writes: {error!r}") from None


def write_committed(directory: Path, files: FileSystem, queries: Mapping[str, CommittedQuery]) -> None:
    """Replace the file (blocking, OSError)."""
    content = {"version": VERSION, "queries": {query: _as_json(one) for query, one in queries.items()}}
    path = directory / names.COMMITTED_WRITES
    write_atomically(files, path, json.dumps(content, indent=1).encode() + b"\n")


def committed_of(queries: Mapping[str, CommittedQuery], write: WriteId) -> CommittedQuery | None:
    """Return how far the write's query is in its target; None: it has committed nothing there."""
    found = queries.get(write.series)
    if found is None and write.target:
        found = queries.get(write.query)
        return found if found is not None and found.records is None else None
    return found


def with_committed(
    queries: Mapping[str, CommittedQuery], write: WriteId, committed: CommittedQuery
) -> dict[str, CommittedQuery]:
    """Note a micro-batch; an entry of before there were targets goes where one of its query has its own."""
    kept = {name: one for name, one in queries.items() if name != write.query or one.records is not None}
    return kept | {write.series: committed}


def _records(content: Mapping[str, Any]) -> Mapping[str, int] | None:
    if "records" not in content:
        return None
    return {str(topic): int(count) for topic, count in content["records"].items()}


def _as_json(one: CommittedQuery) -> dict[str, Any]:
    return {name: value for name, value in one._asdict().items() if value is not None}
