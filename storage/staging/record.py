"""Which micro-batches are committed: one small file of a data directory, replaced atomically by its owner.

    topicfs.writes:  {"version": 1, "queries": {QUERY: {"batch": 41, "producer_id": …, "epoch": 41}}}

A query's micro-batches are committed in order, so its last one says all. A broker passes the file over.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from storage.checkpoints.atomic import write_atomically
from storage.disk import names
from storage.disk.filesystem import FileSystem
from storage.errors import CorruptionError
from storage.model import ProducerId

VERSION = 1
MAX_EPOCH = 2**15 - 1


class CommittedQuery(NamedTuple):
    """How far a query is."""

    batch: int
    """The last one committed; all before it are, too."""
    producer_id: ProducerId
    epoch: int
    """Under which the last one was appended."""


def read_committed(directory: Path, files: FileSystem) -> Mapping[str, CommittedQuery]:
    """By query id; a missing file has none. Raises CorruptionError, OSError."""
    path = directory / names.COMMITTED_WRITES
    if not files.exists(path):
        return {}
    try:
        content = json.loads(files.read_bytes(path))
        if content["version"] != VERSION:
            raise CorruptionError(path, 0, f"version {content['version']}, expected {VERSION}")
        return {
            query: CommittedQuery(int(one["batch"]), ProducerId(int(one["producer_id"])), int(one["epoch"]))
            for query, one in content["queries"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(path, 0, f"no record of committed writes: {error!r}") from None


def write_committed(directory: Path, files: FileSystem, queries: Mapping[str, CommittedQuery]) -> None:
    """Replace the file (blocking, OSError)."""
    content = {"version": VERSION, "queries": {query: one._asdict() for query, one in queries.items()}}
    path = directory / names.COMMITTED_WRITES
    write_atomically(files, path, json.dumps(content, indent=1).encode() + b"\n")


def next_producer(known: CommittedQuery | None) -> tuple[ProducerId, int]:
    """Id and epoch of the next write: a query keeps its id as long as it has epochs."""
    if known is None or known.epoch >= MAX_EPOCH:
        # A broker counts ids up from 0; so far up they never meet.
        return ProducerId(2**62 + secrets.randbelow(2**62)), 0
    return known.producer_id, known.epoch + 1
