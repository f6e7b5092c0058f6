"""Fetch: returns batches as the segments store them, after waiting until there are enough."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import NamedTuple, TypeAlias, cast
from uuid import UUID

from topicfs.listener.broker import Broker, LocalPartition, Request, check_leader_epoch
from topicfs.listener.errors import REFUSALS, RefusedError, code_of
from topicfs.listener.file_piece import FilePiece, Piece
from topicfs.listener.requests.fetch_sessions import (
    SINCE_TOPIC_IDS,
    LastShown,
    Session,
    TopicKey,
    Wanted,
    session_of,
)
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.log.log import Log
from topicfs.storage.model import Fetched, FileSpan, Isolation, Offset, Position
from topicfs.storage.wire import Values

Key: TypeAlias = tuple[TopicKey, int]
"""A partition, as the request identifies it."""

MAX_BUFFERED_BYTES = 1 << 20
"""Largest size of the records in an answer that are copied through this process, unless the first batch is larger."""


_SMALL_BYTES = 64 << 10
"""Records up to this size are read into memory. That costs no more than sendfile(2), and keeps no file open."""
_MAX_FILES = 16
"""Largest number of files that an answer keeps open until it is sent. Records of more partitions are read into
memory.
"""


class _Found(NamedTuple):
    """The records and offsets found for a client in one partition."""

    values: Values
    size: int = 0
    counted: int = 0
    """Number of bytes that count toward `minBytes`. Records that do not fit into this answer count as well, up to the
    limit of the client's request.
    """
    failed: bool = False


class _Counted(NamedTuple):
    """The number of bytes that a waiting request has counted in a partition, up to `offset`."""

    offset: Offset
    size: int


def fetch(broker: Broker, request: Request) -> Values:
    """Answer Fetch; if there are too few records, wait first."""
    try:
        session = session_of(request)
    except RefusedError as error:
        return _answer(request, 0, error.code, ())
    with ExitStack() as listening:
        found = _Reading(broker, request, session, listening).wait()
    news = [(key, one) for key, one in found.items() if _is_news(session, key, one)]
    for key, one in news:
        if one.size:
            session.served(key)
    return _answer(request, session.id, ErrorCode.NONE, [(key, one.values) for key, one in news])


def _answer(
    request: Request, session_id: int, code: ErrorCode, shown: Iterable[tuple[Key, Values]]
) -> Values:
    by_topic: dict[TopicKey, list[Values]] = {}
    for (topic, _), values in shown:
        by_topic.setdefault(topic, []).append(values)
    name = "topicId" if request.version >= SINCE_TOPIC_IDS else "topic"
    responses = [{name: topic, "partitions": partitions} for topic, partitions in by_topic.items()]
    return {"errorCode": code, "sessionId": session_id, "responses": responses}


def _is_news(session: Session, key: Key, one: _Found) -> bool:
    """Store the offsets of a partition in the session. Return whether the answer must include the partition."""
    now = LastShown(one.values["highWatermark"], one.values["logStartOffset"])
    before = session.shown.get(key)
    session.shown[key] = now
    return not session.incremental or one.failed or one.size > 0 or now != before


class _Reading:
    """Reads the records for one request."""

    def __init__(self, broker: Broker, request: Request, session: Session, listening: ExitStack) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        self._listening = listening
        values = request.values
        committed = values["isolationLevel"]
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._most = min(values["maxBytes"], broker.limits.max_fetch_bytes)
        self._enough = min(values["minBytes"], self._most)
        self._memory: ExitStack | None = None
        """Holds the memory budget for the records that are read."""
        self._readable = MAX_BUFFERED_BYTES
        """Number of bytes that may still be read into memory."""
        self._files_left = _MAX_FILES
        self._counted: dict[Key, _Counted] = {}
        self._changed: dict[Key, None] = {}
        """The partitions whose records must be counted again. Other threads add partitions."""
        self._noted = False
        """True once a partition changed while the request waited."""

    def wait(self) -> dict[Key, _Found]:
        """Return the records of all partitions once there are enough, or the waiting time is over.

        While it waits, it only counts new records: it does not read old records again, and holds no memory.
        """
        values, waiting = self._request.values, self._request.client.waiting
        seconds = min(max(values["maxWaitMs"], 0) / 1000, self._broker.limits.max_wait_seconds)
        deadline = time.monotonic() + seconds
        found = self._read_all()
        sizes = {key: one.counted for key, one in found.items()}
        failed = any(one.failed for one in found.values())
        if not found or failed or seconds <= 0 or sum(sizes.values()) >= self._enough:
            return found
        self._let_go_of_memory()
        with suppress(*REFUSALS):  # If a partition is gone, counting its records reports the error.
            for key in found:
                changed = partial(self._note, key)
                self._listening.callback(self._partition(key).listen(changed))
        self._changed.update(
            dict.fromkeys(found)
        )  # Count also the records that were appended before the listeners were added.
        while True:
            waiting.arm()
            try:
                sizes.update({key: self._count(key) for key in self._take_changed()})
            except REFUSALS:
                break
            self._let_go_of_memory()
            left = deadline - time.monotonic()
            if left <= 0 and not self._noted and not any(sizes.values()):
                return found  # The usual end of an idle consumer's wait.
            if left <= 0 or sum(sizes.values()) >= self._enough:
                break
            with self._broker.rest():
                if not waiting.wait(left):
                    raise ConnectionAbortedError("the listener is closing")
        return self._read_all()

    def _note(self, key: Key) -> None:
        self._changed[key] = None
        self._noted = True
        self._request.client.waiting.wake()

    def _take_changed(self) -> Iterator[Key]:
        while self._changed:
            yield self._changed.popitem()[0]

    def _count(self, key: Key) -> int:
        """Return how many bytes of records a partition has for the client. Raises REFUSALS."""
        wanted, partition = self._session.partitions[key], self._partition(key)
        check_leader_epoch(partition, wanted.leader_epoch)
        room = min(wanted.max_bytes, self._most)
        span = self._span(partition, wanted.offset, room)
        if span is not None:
            return max(room, span.size) if self._goes_on(partition, span.next_offset) else span.size
        counted = self._counted.get(key, _Counted(Offset(wanted.offset), 0))
        if self._goes_on(partition, counted.offset) and counted.size < room:
            self._hold_memory()
            fetched = partition.read(counted.offset, max_bytes=MAX_BUFFERED_BYTES, isolation=self._isolation)
            self._counted[key] = counted = _Counted(fetched.next_offset, counted.size + len(fetched.data))
        return counted.size

    def _read_all(self) -> dict[Key, _Found]:
        left, self._readable, self._files_left = self._most, MAX_BUFFERED_BYTES, _MAX_FILES
        found: dict[Key, _Found] = {}
        first = True
        for key, wanted in self._session.partitions.items():
            one = self._read(key, wanted, left, first=first)
            first = first and not one.size
            left -= one.size
            found[key] = one
        return found

    def _partition(self, key: Key) -> LocalPartition:
        topic, number = key
        named = {"topicId": topic} if isinstance(topic, UUID) else {"topic": topic}
        return self._broker.partition(self._broker.topic_of(named), number)

    def _read(self, key: Key, wanted: Wanted, left: int, *, first: bool) -> _Found:
        """Read from a partition.

        If `first`, return at least one batch if there is any, however large the batch is.
        """
        try:
            partition = self._partition(key)
            check_leader_epoch(partition, wanted.leader_epoch)
            room = min(wanted.max_bytes, left)
            records, found = self._records(partition, Offset(wanted.offset), room, first=first)
            offsets = partition.offsets()
        except REFUSALS as error:
            return _Found(_failure(key[1], code_of(error)), failed=True)
        aborted = [
            {"producerId": producer_id, "firstOffset": first_offset}
            for producer_id, first_offset in found.aborted
        ]
        values = {
            "partitionIndex": key[1],
            "errorCode": 0,
            "highWatermark": offsets.high_watermark,
            "lastStableOffset": offsets.last_stable_offset,
            "logStartOffset": offsets.log_start_offset,
            "abortedTransactions": aborted if self._isolation is Isolation.READ_COMMITTED else None,
            "preferredReadReplica": -1,
            "records": records,
        }
        more = self._goes_on(partition, found.next_offset)
        return _Found(values, len(records), max(room, len(records)) if more else len(records))

    def _records(
        self, partition: LocalPartition, offset: Offset, room: int, *, first: bool
    ) -> tuple[Piece, FileSpan | Fetched]:
        """Read batches from `offset` on; return them as a piece of the answer, together with the result of the read."""
        may_send = self._files_left > 0 and (first or room > 0)
        span = self._span(partition, offset, room) if may_send else None
        if span is not None and span.size > _SMALL_BYTES:
            if not first and span.size > room:
                return b"", span
            self._files_left -= 1
            cast(Log, partition).parts.counts.reads.size_bytes += span.size
            return FilePiece(span), span
        room = min(room, self._readable)
        if not first and room <= 0:
            return b"", Fetched(memoryview(b""), Position(0), Offset(0), offset)
        if self._goes_on(partition, offset):
            self._hold_memory()
        fetched = partition.read(offset, max_bytes=max(room, 1), isolation=self._isolation)
        if not first and len(fetched.data) > room:
            return b"", fetched
        self._readable -= len(fetched.data)
        return fetched.data, fetched

    def _span(self, partition: LocalPartition, offset: int, room: int) -> FileSpan | None:
        """Return the span of a file with the batches from `offset` on. Raises REFUSALS.

        Returns None if the batches must be read into memory, or if there are none. A partition with replicas is
        always read into memory, because reading compares the replicas.
        """
        if not isinstance(partition, Log):
            return None
        return partition.find_span(Offset(offset), max_bytes=max(room, 1), isolation=self._isolation)

    def _goes_on(self, partition: LocalPartition, offset: Offset) -> bool:
        """Return whether readers see a record at or after `offset`."""
        return offset < partition.visible_end(self._isolation)

    def _hold_memory(self) -> None:
        """Hold the memory budget for records until the answer is sent, or until the request waits."""
        if self._memory is None:
            self._memory = self._request.held.enter_context(ExitStack())
            with self._broker.rest():
                self._memory.enter_context(self._broker.memory.lent(MAX_BUFFERED_BYTES))

    def _let_go_of_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def _failure(number: int, code: ErrorCode) -> Values:
    unknown = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return {
        "partitionIndex": number,
        "errorCode": code,
        "highWatermark": -1,
        "lastStableOffset": -1,
        "logStartOffset": -1,
        "abortedTransactions": [] if unknown else None,
        "preferredReadReplica": -1,
        "records": b"",
    }
