"""The record of committed micro-batches: one small file, the same in every data directory that serves, replaced atomically.

    topicfs.writes:  {"version": 1, "queries": {QUERY@TOPIC_ID: {"batch": 41, "producer_id": …, "epoch": 41,
                                                                 "records": {"orders": 50}}}}

The topic is that which the query writes to, by id: a query that writes elsewhere, or to a topic created again, has committed
nothing there. Where each row says its topic there is the query alone. A query's micro-batches are committed in order, so its
last one says all. Entries of before there were targets have no records either, and count for every target of their query
until one has an entry of its own. A broker passes the file over.

The owner writes every directory before a micro-batch counts as committed. A directory that was away has an older copy: of each
query the highest micro-batch of all copies counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from threading import Lock
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


class CommitRecord:
    """The record and its copies. Safe from any thread."""

    def __init__(
        self,
        files: FileSystem,
        directories: Callable[[], Sequence[Path]],
        failed: Callable[[Path, OSError], None] = lambda _directory, _error: None,
    ) -> None:
        """Prepare the record; `directories`: those that serve now; `failed`: called if only others could be written."""
        self._files = files
        self._directories = directories
        self._failed = failed
        self._problem: CorruptionError | OSError | None = None
        self._lock = Lock()

    def read(self) -> dict[str, CommittedQuery]:
        """Return the newest entries; one whole copy is enough (CorruptionError, OSError)."""
        newest: dict[str, CommittedQuery] = {}
        for copy in self._copies()[0].values():
            for query, one in copy.items():
                newest[query] = max(newest.get(query, one), one, key=lambda each: each.batch)
        return newest

    def note(self, write: WriteId, committed: CommittedQuery) -> None:
        """Note a micro-batch; on disk in every directory that serves when this returns (blocking; CorruptionError, OSError)."""
        with self._lock:
            self._write(with_committed(self.read(), write, committed), self._directories())

    def settle(self, stale: Collection[Path] = ()) -> None:
        """Write the newest copy where there is none, an older or a damaged one (blocking; CorruptionError, OSError).

        `stale`: directories that did not serve until now. If only they have a whole copy the damaged one may have later entries:
        nothing is committed until it is removed.
        """
        with self._lock:
            self._problem = None
            copies, problem = self._copies()
            if problem is not None and not any(copy and one not in stale for one, copy in copies.items()):
                self._problem = problem
                raise problem
            newest = self.read()
            self._write(newest, [one for one in self._directories() if newest and copies.get(one) != newest])

    def _copies(self) -> tuple[dict[Path, Mapping[str, CommittedQuery]], CorruptionError | OSError | None]:
        """Return the whole copies, and what is wrong with another one."""
        if self._problem is not None:
            raise self._problem
        copies, problem = {}, None
        for directory in self._directories():
            try:
                copies[directory] = read_committed(directory, self._files)
            except (CorruptionError, OSError) as error:
                problem = error
        if problem is not None and not any(copies.values()):
            raise problem
        return copies, problem

    def _write(self, queries: Mapping[str, CommittedQuery], directories: Sequence[Path]) -> None:
        failed: dict[Path, OSError] = {}
        for directory in directories:
            try:
                write_committed(directory, self._files, queries)
            except OSError as error:
                failed[directory] = error
        for directory, problem in failed.items():
            if len(failed) == len(self._directories()):
                raise problem
            self._failed(directory, problem)


def read_committed(directory: Path, files: FileSystem) -> Mapping[str, CommittedQuery]:
    """Return the committed queries of one copy by query and target (`WriteId.series`); a missing file has none. Raises CorruptionError, OSError."""
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
