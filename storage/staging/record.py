"""The record of committed micro-batches: one small file, the same in every data directory that serves, replaced atomically.

    topicfs.writes:  {"version": 1, "queries": {QUERY@TOPIC_ID: {"batch": 41, "producer_id": …, "epoch": 41,
                                                                 "records": {"orders": 50}}}}

The topic is that which the query writes to, by id: a query that writes elsewhere, or to a topic created again, has committed
nothing there. Where each row says its topic there is the query alone. A query's micro-batches are committed in order, so its
last one says all. Entries of before there were targets have no records either, and count for every target of their query
until one has an entry of its own. A broker passes the file over.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from topicfs.storage.checkpoints.copies import RecordCopies
from topicfs.storage.disk import names
from topicfs.storage.disk.names import WriteId
from topicfs.storage.model import ProducerId


class CommittedQuery(NamedTuple):
    """The progress of a query."""

    batch: int
    """The last one committed; all before it are, too."""
    producer_id: ProducerId
    epoch: int
    """Producer epoch of the last one."""
    records: Mapping[str, int] | None = None
    """Number of records of the last one, by topic; None: not noted."""


class CommitRecord(RecordCopies[str, CommittedQuery]):
    """The record and its copies."""

    file_name, version, meaning = names.COMMITTED_WRITES, 1, "record of committed writes"
    age = attrgetter("batch")

    def note(self, write: WriteId, committed: CommittedQuery) -> None:
        """Note a micro-batch; on disk in every directory that serves when this returns (blocking; CorruptionError, OSError)."""
        with self._lock:
            self._write(with_committed(self.read(), write, committed), self.directories())

    def _parse(self, content: Mapping[str, Any]) -> dict[str, CommittedQuery]:
        return {
            query: CommittedQuery(
                int(one["batch"]), ProducerId(int(one["producer_id"])), int(one["epoch"]), _records(one)
            )
            for query, one in content["queries"].items()
        }

    def _as_json(self, entries: Mapping[str, CommittedQuery]) -> dict[str, object]:
        plain = {
            query: {name: value for name, value in one._asdict().items() if value is not None}
            for query, one in entries.items()
        }
        return {"queries": plain}


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
