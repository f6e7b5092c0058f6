"""Compares a log's small files (topic id, transaction indexes, snapshots, leader epochs) with their expected content.

A file that differs from the engine's memory is rewritten. A bad snapshot is copied from another replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from topicfs.replication.scrub.findings import ScrubFinding, healed
from topicfs.replication.scrub.repair import Copy, end_of
from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.checkpoints.leader_epochs import encode_epochs
from topicfs.storage.checkpoints.partition_metadata import topic_id_of, write_topic_id_again
from topicfs.storage.disk.names import LEADER_EPOCHS, PARTITION_METADATA, SegmentFileKind, segment_file
from topicfs.storage.errors import CorruptBatchError, CorruptionError, Finding
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.indexes.transaction_index import encode as encode_span
from topicfs.storage.log.log import Log
from topicfs.storage.model import Position
from topicfs.storage.producers.snapshot import decode as decode_snapshot

MEMORY = "memory"
"""The source of a repair from the engine's memory."""


def scrub_epochs(log: Log, *, heals: bool) -> Iterator[ScrubFinding]:
    """Compare the file of leader epochs with the epochs in memory. Raises OSError."""
    parts = log.parts
    path = parts.directory / LEADER_EPOCHS
    with parts.lock:
        if log.epochs.dirty:
            return
        known = encode_epochs(log.epochs.entries)
        found_bytes = parts.files.read_bytes(path) if parts.files.exists(path) else b""
        # The file is empty until there is an epoch.
        if found_bytes == known or not (found_bytes or log.epochs.entries):
            return
        finding = Finding(path, None, "differs from the leader epochs of the log")
        found = healed(finding, lambda: write_atomically(parts.files, path, known), MEMORY if heals else None)
    yield found


def scrub_topic_id(log: Log, topic_id: str | None, *, heals: bool) -> Iterator[ScrubFinding]:
    """Compare the topic id in a log's directory with the id under which the topic is served. Raises OSError."""
    parts = log.parts
    path = parts.directory / PARTITION_METADATA
    with parts.lock:
        if topic_id is None or topic_id == topic_id_of(parts.directory, parts.files):
            return
        finding = Finding(path, None, "differs from the id of the topic")
        write = partial(write_topic_id_again, parts.files, parts.directory, topic_id)
        found = healed(finding, write, MEMORY if heals else None)
    yield found


def scrub_small_files(copies: Sequence[Copy], *, rewritten: bool, heals: bool) -> Iterator[ScrubFinding]:
    """Compare the small files of a segment's copies. If `rewritten`, compaction may have made them differ.

    Raises OSError.
    """
    for copy in copies:
        yield from _transactions(copy, heals=heals)
    if not rewritten:
        yield from _other_transactions(copies, heals=heals)
    yield from _snapshots(copies, heals=heals)


def _transactions(copy: Copy, *, heals: bool) -> Iterator[ScrubFinding]:
    parts, segment = copy.log.parts, copy.segment
    with parts.lock:
        if segment.removed or not segment.may_have_aborted:
            return
        path, spans = segment.transaction_index.path, segment.transaction_index.spans
        found_bytes = parts.files.read_bytes(path) if parts.files.exists(path) else b""
        if found_bytes == b"".join(map(encode_span, spans)):
            return
        finding = Finding(path, None, "differs from the aborted transactions of the segment")
        found = healed(finding, partial(_write_aborted, copy, spans), MEMORY if heals else None)
    yield found


def _other_transactions(copies: Sequence[Copy], *, heals: bool) -> Iterator[ScrubFinding]:
    """Copy missing entries of transaction indexes from the index that has all of them.

    If no index has all entries, repair none.
    """
    end = min(map(end_of, copies))
    found = {copy: _aborted(copy, end) for copy in copies}
    best = max(copies, key=lambda copy: len(found[copy]))
    is_most = all(set(spans) <= set(found[best]) for spans in found.values())
    for copy, spans in found.items():
        if copy.segment.removed or (is_most and spans == found[best]):
            continue
        path = copy.segment.transaction_index.path
        finding = Finding(path, None, "differs from the aborted transactions of the other replicas")
        with copy.log.parts.lock:
            write = partial(_write_aborted, copy, found[best])
            rewritten = healed(finding, write, best.place if heals and is_most else None)
        yield rewritten


def _aborted(copy: Copy, end: int) -> list[AbortedSpan]:
    """Return the aborted transactions in a copy's index whose markers are below `end`."""
    with copy.log.parts.lock:  # An append publishes its end before its entries.
        spans = copy.segment.transaction_index.spans if copy.segment.may_have_aborted else ()
    return [one for one in spans if copy.segment.base_offset <= one.last_offset < end]


def _write_aborted(copy: Copy, spans: Sequence[AbortedSpan]) -> None:
    """Rewrite the transaction index with `spans` and its own later entries. The caller holds the log's lock."""
    index = copy.segment.transaction_index
    if spans:
        last, end = spans[-1].last_offset, end_of(copy)
        spans = [*spans, *(one for one in index if last < one.last_offset < end)]
        if not index.spans:
            copy.segment.add_aborted(spans[0])  # Create the file if it is missing.
    index.close()  # The next append reopens the file.
    write_atomically(copy.log.parts.files, index.path, b"".join(map(encode_span, spans)))
    index.spans = list(spans)


def _snapshots(copies: Sequence[Copy], *, heals: bool) -> Iterator[ScrubFinding]:
    found = {copy.place: _snapshot(copy) for copy in copies}
    sound = [(place, data) for place, (_, data, problem) in found.items() if data is not None and not problem]
    for copy in copies:
        path, data, problem = found[copy.place]
        if data is None or problem is None:
            continue
        source, good = sound[0] if sound and heals else (None, b"")
        files = copy.log.parts.files
        yield healed(problem, partial(write_atomically, files, path, good), source)


def _snapshot(copy: Copy) -> tuple[Path, bytes | None, Finding | None]:
    """Return the path, the bytes and the fault (if any) of the producer snapshot at a segment's base offset."""
    parts = copy.log.parts
    path = parts.directory / segment_file(copy.segment.base_offset, SegmentFileKind.SNAPSHOT)
    try:
        data = parts.files.read_bytes(path)
    except FileNotFoundError:
        return path, None, None
    try:
        decode_snapshot(data)
    except CorruptBatchError as error:
        return path, data, Finding(path, Position(error.position), error.cause)
    except CorruptionError as error:
        return path, data, Finding.of(error)
    return path, data, None
