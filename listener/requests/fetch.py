"""Fetch: batches as they are in the segments, at once or as soon as there are enough."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import NamedTuple, TypeAlias
from uuid import UUID

from topicfs.listener.broker import Broker, LocalPartition, Request, check_leader_epoch
from topicfs.listener.errors import REFUSALS, BadRequestError, RefusedError, code_of
from topicfs.listener.requests.fetch_sessions import LastShown, Session, TopicKey, Wanted, session_of
from topicfs.protocol.error_codes import ErrorCode
from topicfs.storage.model import Buffer, Fetched, Isolation, Offset, Position
from topicfs.storage.wire import Values

Key: TypeAlias = tuple[TopicKey, int]
"""A partition as a request names it."""

READ_BYTES = 1 << 20
"""Most bytes of records in an answer that pass through this process's memory, if their first batch is not larger."""


class _Found(NamedTuple):
    """What there is for a client in one partition."""

    values: Values
    size: int = 0
    failed: bool = False


def fetch(broker: Broker, request: Request) -> Values:
    """Answer Fetch, after a wait if there is too little for now."""
    try:
        session = session_of(request)
    except RefusedError as error:
        return _answer(request, 0, error.code, ())
    with ExitStack() as listening:
        found = _Reading(broker, request, session).wait(listening)
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
    name = "topicId" if request.version >= 13 else "topic"
    responses = [{name: topic, "partitions": partitions} for topic, partitions in by_topic.items()]
    return {"throttleTimeMs": 0, "errorCode": code, "sessionId": session_id, "responses": responses}


def _is_news(session: Session, key: Key, one: _Found) -> bool:
    """Return whether an answer has to have a partition, and note what it says of it."""
    now = LastShown(one.values["highWatermark"], one.values["logStartOffset"])
    before = session.shown.get(key)
    session.shown[key] = now
    return not session.incremental or one.failed or one.size > 0 or now != before


class _Reading:
    """The reading of one request."""

    def __init__(self, broker: Broker, request: Request, session: Session) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        committed = request.values["isolationLevel"]
        self._isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        self._holds_memory = False

    def wait(self, listening: ExitStack) -> dict[Key, _Found]:
        """Read all partitions, again whenever one of them changes, until there is enough or the time is over."""
        values, waiting = self._request.values, self._request.client.waiting
        seconds = min(max(values["maxWaitMs"], 0) / 1000, self._broker.limits.max_wait_seconds)
        deadline = time.monotonic() + seconds
        enough = min(values["minBytes"], values["maxBytes"], READ_BYTES)  # An answer never gets more.
        listens = False
        while True:
            waiting.arm()
            found = self._read_all()
            read = sum(one.size for one in found.values())
            left = deadline - time.monotonic()
            failed = any(one.failed for one in found.values())
            if read >= enough or failed or left <= 0 or not found:
                return found
            if not listens:  # What comes between the reading and this is read at once.
                listens = True
                with suppress(*REFUSALS):  # The next reading finds out, and says so.
                    for key in found:
                        listening.callback(self._partition(key).listen(waiting.wake))
                continue
            with self._broker.rest():
                if not waiting.wait(left):
                    raise BadRequestError("the listener ends")

    def _read_all(self) -> dict[Key, _Found]:
        left = min(self._request.values["maxBytes"], READ_BYTES)
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
        """Read a partition; of the first one with records, a batch at least, however large it is."""
        try:
            partition = self._partition(key)
            check_leader_epoch(partition, wanted.leader_epoch)
            room = min(wanted.max_bytes, left)
            records, aborted = self._records(partition, Offset(wanted.offset), room, first=first)
            offsets = partition.offsets()
        except REFUSALS as error:
            return _Found(_failure(key[1], code_of(error)), failed=True)
        values = {
            "partitionIndex": key[1],
            "errorCode": 0,
            "highWatermark": offsets.high_watermark,
            "lastStableOffset": offsets.last_stable_offset,
            "logStartOffset": offsets.log_start_offset,
            "abortedTransactions": aborted,
            "preferredReadReplica": -1,
            "records": records,
        }
        return _Found(values, len(records))

    def _records(
        self, partition: LocalPartition, offset: Offset, room: int, *, first: bool
    ) -> tuple[Buffer, list[Values] | None]:
        """Return batches from an offset on, and the aborted transactions that they are part of."""
        if not first and room <= 0:
            fetched = Fetched(memoryview(b""), Position(0), Offset(0), offset)
        else:
            self._hold_memory()
            fetched = partition.read(offset, max_bytes=max(room, 1), isolation=self._isolation)
        whole = first or len(fetched.data) <= room
        aborted = [
            {"producerId": producer_id, "firstOffset": first_offset}
            for producer_id, first_offset in fetched.aborted
        ]
        return (
            fetched.data if whole else b"",
            aborted if self._isolation is Isolation.READ_COMMITTED else None,
        )

    def _hold_memory(self) -> None:
        """Take the memory for the records, until the answer is sent."""
        if not self._holds_memory:
            with self._broker.rest():
                self._request.held.enter_context(self._broker.memory.lent(READ_BYTES))
            self._holds_memory = True


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
