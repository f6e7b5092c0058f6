"""Fetches record batches as the brokers store them, and the bounds of partitions.

Each request goes to one broker, for any number of partitions that it leads. An error of one partition is in that
partition's part of the answer; the other parts are valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from topicfs.cluster.brokers.brokers import Brokers
from topicfs.cluster.errors import NONE, MalformedAnswerError, error_of
from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import ANSWER_TIMEOUT_SECONDS
from topicfs.protocol.messages import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.checkpoints.leader_epochs import EpochEnd
from topicfs.storage.model import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    AbortedTransaction,
    Isolation,
    Offset,
    ProducerId,
    Timestamp,
    TopicPartition,
)
from topicfs.storage.wire import Values

LATEST = -1
EARLIEST = -2
"""The timestamp with which ListOffsets asks for the log start."""

MAX_FETCH_ANSWER_BYTES = 512 << 20
"""Size limit of an answer with batches: a broker sends the first batch whole, even if a lower limit was requested."""
FIRST_VERSION_BY_ID = 13
NO_SESSION = -1
SESSION_ERRORS = frozenset((70, 71, 103, 106))
"""Errors that require a new fetch session: its id is unknown, its epoch is wrong, or a topic's id has changed."""
NO_EPOCHS = EpochEnd(NO_LEADER_EPOCH, Offset(2**63 - 1))
"""The result for a leader whose log has no epochs (Kafka's oldest formats). Lost records cannot be detected in such a
log.
"""
_FIRST_EPOCH = 0
_LAST_EPOCH = 2**31 - 1


class FetchPartition(NamedTuple):
    """One partition of a fetch request: the offset to read from, and the size limit in bytes."""

    partition: TopicPartition
    topic_id: str
    offset: Offset
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader's epoch, if known. A leader in another epoch rejects the request."""
    last_epoch: int = NO_LEADER_EPOCH
    """The epoch of the batch before `offset`, if a batch was read. The leader then reports whether its log diverges."""
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """A leader's answer about one partition."""

    error: int
    """Kafka's error code; the offsets are valid only if it is NONE."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: memoryview
    """Batches as on the broker's disk. The last batch may be incomplete."""
    aborted: tuple[AbortedTransaction, ...]
    diverging: EpochEnd | None
    """None, unless the leader's log and the records read before diverge. `records` is then empty.

    The value is the last epoch that both have, with its end in the leader's log.
    """

    @property
    def at_place(self) -> bool:
        """True if the leader has read from the requested offset. Then `records` begins at that offset."""
        return self.error == NONE and self.diverging is None


class FetchAnswer(NamedTuple):
    partitions: Mapping[TopicPartition, FetchedPartition]
    """The partitions in the answer; none while a quota is exceeded, even if there are new records."""
    throttle_ms: int
    """The throttle time in milliseconds, which `Brokers` respects."""


def fetch(
    brokers: Brokers,
    node: int,
    wanted: Iterable[FetchPartition],
    *,
    max_bytes: int,
    isolation: Isolation = Isolation.READ_COMMITTED,
    seconds: float = ANSWER_TIMEOUT_SECONDS,
) -> FetchAnswer:
    """Fetch available records from one broker (blocking). Raises ClusterError and the errors of `Connection.call`."""
    wanted = list(wanted)
    request = {**_terms(max_bytes, 0, isolation), "sessionEpoch": NO_SESSION, "topics": _by_topic(wanted)}
    server, answer = _ask(brokers, node, request, seconds)
    if answer["errorCode"]:
        raise error_of(answer["errorCode"], str(server))
    names = {decode_id(one.topic_id): one.partition.topic for one in wanted}
    return FetchAnswer(_partitions(answer, names), answer["throttleTimeMs"])


class FetchSession:
    """An incremental fetch session (KIP-227): broker and client remember the partitions, and send only changes.

    Used by one thread at a time. If the broker has no free session slot, each request lists all partitions.
    """

    def __init__(self, brokers: Brokers, node: int, isolation: Isolation) -> None:
        self._brokers, self._node, self._isolation = brokers, node, isolation
        self._id = 0
        self._epoch = _FIRST_EPOCH
        """Epoch of the next request. _FIRST_EPOCH starts a session with all partitions and ends the previous one."""
        self._known: dict[TopicPartition, FetchPartition] = {}
        """The partitions as the broker remembers them for this session."""
        self._names: dict[UUID, str] = {}

    def fetch(
        self,
        wanted: Iterable[FetchPartition],
        *,
        max_bytes: int,
        wait_ms: int = 0,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> FetchAnswer:
        """Return the partitions that have changed since the last call.

        A partition that is missing from the answer has not changed, unless the answer is throttled: it may then leave
        out changed partitions. The broker waits up to `wait_ms` for new bytes. Blocks and raises like `fetch.fetch`.
        """
        now = {one.partition: one for one in wanted}
        while True:
            request = {**_terms(max_bytes, wait_ms, self._isolation), **self._changes(now)}
            try:
                server, answer = _ask(self._brokers, self._node, request, seconds + wait_ms / 1000)
            except BaseException:
                self._epoch = _FIRST_EPOCH
                raise
            if not answer["errorCode"]:
                break
            begun, self._epoch = self._epoch != _FIRST_EPOCH, _FIRST_EPOCH
            if not (begun and answer["errorCode"] in SESSION_ERRORS):
                raise error_of(answer["errorCode"], str(server))
        self._id, self._known = answer["sessionId"], now
        self._epoch = (self._epoch % _LAST_EPOCH) + 1 if self._id else _FIRST_EPOCH
        found = _partitions(answer, self._names)
        return FetchAnswer({name: found[name] for name in found if name in now}, answer["throttleTimeMs"])

    def _changes(self, now: Mapping[TopicPartition, FetchPartition]) -> dict[str, Any]:
        """Return the session's fields of the next request: all partitions in a new session, otherwise only changes."""
        known = {} if self._epoch == _FIRST_EPOCH else self._known
        changed = [one for one in now.values() if known.get(one.partition) != one]
        gone = [
            one
            for one in known.values()
            if one.partition not in now or now[one.partition].topic_id != one.topic_id
        ]
        if not known:
            self._names = {}
        self._names |= {decode_id(one.topic_id): one.partition.topic for one in changed}
        return {
            "sessionId": self._id,
            "sessionEpoch": self._epoch,
            "topics": _by_topic(changed),
            "forgottenTopicsData": [
                {
                    "topic": topic,
                    "topicId": decode_id(topic_id),
                    "partitions": [one.partition.partition for one in group],
                }
                for (topic, topic_id), group in groupby(
                    sorted(gone), key=lambda one: (one.partition.topic, one.topic_id)
                )
            ],
        }


def _terms(max_bytes: int, wait_ms: int, isolation: Isolation) -> dict[str, Any]:
    return {
        "replicaId": -1,
        "maxWaitMs": wait_ms,
        "minBytes": 1,
        "maxBytes": max_bytes,
        "isolationLevel": int(isolation is Isolation.READ_COMMITTED),
    }


def _ask(brokers: Brokers, node: int, request: Values, seconds: float) -> tuple[Server, Values]:
    with brokers.connection(node, seconds=seconds) as connection:
        answer = connection.call(FETCH, request, max_bytes=MAX_FETCH_ANSWER_BYTES, seconds=seconds)
        return connection.server, answer


def _partitions(answer: Values, names: Mapping[UUID, str]) -> dict[TopicPartition, FetchedPartition]:
    return {
        TopicPartition(name, one["partitionIndex"]): _fetched(one)
        for topic in answer["responses"]
        if (name := topic.get("topic") or names.get(topic.get("topicId"))) is not None
        for one in topic["partitions"]
    }


def _by_topic(wanted: Iterable[FetchPartition]) -> list[dict[str, Any]]:
    """Return the topics of a request, in the order of their first partitions."""
    topics: dict[str, dict[str, Any]] = {}
    for one in wanted:
        name, number = one.partition
        topic = topics.setdefault(name, {"topic": name, "topicId": decode_id(one.topic_id), "partitions": []})
        topic["partitions"].append(
            {
                "partition": number,
                "currentLeaderEpoch": one.leader_epoch,
                "fetchOffset": one.offset,
                "lastFetchedEpoch": one.last_epoch,
                "logStartOffset": -1,
                "partitionMaxBytes": one.max_bytes,
            }
        )
    return list(topics.values())


def _fetched(answer: Mapping[str, Any]) -> FetchedPartition:
    diverging = answer["divergingEpoch"]
    return FetchedPartition(
        error=answer["errorCode"],
        high_watermark=Offset(answer["highWatermark"]),
        last_stable_offset=Offset(answer["lastStableOffset"]),
        log_start_offset=Offset(answer["logStartOffset"]),
        records=answer["records"] or memoryview(b""),
        aborted=tuple(
            AbortedTransaction(ProducerId(one["producerId"]), Offset(one["firstOffset"]))
            for one in answer["abortedTransactions"] or ()
        ),
        diverging=None if diverging is None else EpochEnd(diverging["epoch"], Offset(diverging["endOffset"])),
    )


class ListedOffset(NamedTuple):
    """The offset found for a partition, or Kafka's error code."""

    error: int
    offset: Offset
    """The offset that was found; -1 if there is none, for example for a timestamp after the last record."""
    timestamp: Timestamp = NO_TIMESTAMP
    """Timestamp of the record at the offset, for lookups by time."""
    leader_epoch: int = NO_LEADER_EPOCH


def list_offsets(
    brokers: Brokers,
    node: int,
    partitions: Collection[TopicPartition],
    timestamp: int,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    seconds: float = ANSWER_TIMEOUT_SECONDS,
) -> dict[TopicPartition, ListedOffset]:
    """Return the first offset at or after `timestamp` for each partition (blocking).

    `timestamp` may be LATEST (the end of the visible records) or EARLIEST. If `partitions` maps partitions to leader
    epochs, a broker that leads in another epoch answers with an error. Raises the errors of `Connection.call`.
    """
    request = offsets_request(partitions, timestamp, isolation, seconds)
    return bounds_of(brokers.ask(node, LIST_OFFSETS, request, seconds=seconds), node, partitions, timestamp)


def list_all_offsets(
    brokers: Brokers,
    node: int,
    epochs: Mapping[TopicPartition, int],
    *asked: tuple[int, Isolation],
    seconds: float = ANSWER_TIMEOUT_SECONDS,
) -> list[dict[TopicPartition, ListedOffset]]:
    """Return the results of `list_offsets` for several timestamps, in order, with one round trip (blocking)."""
    requests = [
        (LIST_OFFSETS, offsets_request(epochs, time, isolation, seconds)) for time, isolation in asked
    ]
    with brokers.connection(node, seconds=seconds) as connection:
        first, later = connection.call_all(*requests, seconds=seconds)
    return [
        list_offsets(brokers, node, epochs, time, isolation=isolation, seconds=seconds)
        if answer is None
        else bounds_of(answer, node, epochs, time)
        for (time, isolation), answer in zip(asked, (first, *later), strict=True)
    ]


def offsets_request(
    partitions: Collection[TopicPartition], timestamp: int, isolation: Isolation, seconds: float
) -> Values:
    epochs: Mapping[TopicPartition, int] = partitions if isinstance(partitions, Mapping) else {}
    return {
        "replicaId": -1,
        "isolationLevel": int(isolation is Isolation.READ_COMMITTED),
        "timeoutMs": int(seconds * 1000),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partitionIndex": one.partition,
                        "currentLeaderEpoch": epochs.get(one, NO_LEADER_EPOCH),
                        "timestamp": timestamp,
                    }
                    for one in group
                ],
            }
            for topic, group in groupby(sorted(partitions), key=lambda one: one.topic)
        ],
    }


def bounds_of(
    answer: Values, node: int, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, ListedOffset]:
    """Return the offsets in a ListOffsets answer. Raises MalformedAnswerError if the answer lacks a partition."""
    found = {
        TopicPartition(topic["name"], one["partitionIndex"]): ListedOffset(
            one["errorCode"], Offset(one["offset"]), Timestamp(one["timestamp"]), one["leaderEpoch"]
        )
        for topic in answer["topics"]
        for one in topic["partitions"]
    }
    for partition in partitions:
        bound = found.get(partition)
        if bound is None or (timestamp < 0 and not bound.error and bound.offset < 0):
            raise MalformedAnswerError(
                f"broker {node}: the answer to ListOffsets does not mention {partition}"
            )
    return found


def epoch_ends(
    brokers: Brokers,
    node: int,
    epochs: Mapping[TopicPartition, int],
    leader_epochs: Mapping[TopicPartition, int],
) -> dict[TopicPartition, EpochEnd]:
    """Ask a leader where an epoch ends in its logs; `epochs` has the epoch of each partition (blocking).

    If a log lacks the epoch, the result has the newest epoch below it, with its end. The result leaves out partitions
    that the broker does not lead in their epoch in `leader_epochs`. Raises the errors of `Connection.call`.
    """
    request = {
        "replicaId": -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": one.partition,
                        "currentLeaderEpoch": leader_epochs[one],
                        "leaderEpoch": epochs[one],
                    }
                    for one in group
                ],
            }
            for topic, group in groupby(sorted(epochs), key=lambda one: one.topic)
        ],
    }
    answer = brokers.ask(node, OFFSET_FOR_LEADER_EPOCH, request)
    return {
        TopicPartition(topic["topic"], one["partition"]): EpochEnd(
            one["leaderEpoch"], Offset(one["endOffset"])
        )
        if one["endOffset"] >= 0
        else NO_EPOCHS
        for topic in answer["topics"]
        for one in topic["partitions"]
        if one["errorCode"] == NONE
    }
