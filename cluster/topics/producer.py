"""Appends to partitions of a cluster: one batch at a time, each in the log once, however often it has to be sent.

    append ─► a batch, with the next sequence number ─► its leader ─► its offset
                        ▲                                  │ no answer, or another broker leads now
                        └── the same bytes again ──────────┘

A broker takes one batch of a partition in a request, and knows a batch again by its producer's id and sequence number
(kafka-storage.md#sequences). So a partition has one batch under way at a time, and where nobody knows what became of
one, the partition goes on with another id: neither can what comes next be taken for a repeat, nor is it out of order.
Batches that come with a producer get this one in its place: they are a copy, not what that producer appends here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from topicfs.cluster.brokers.bounds import KnownBounds, PartitionBounds, ask_bounds, ask_leader_for_bounds
from topicfs.cluster.brokers.brokers import Backoff, Leader
from topicfs.cluster.brokers.fetch import LATEST, bounds_of, offsets_request
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.errors import (
    DUPLICATE_SEQUENCE,
    INVALID_PRODUCER_EPOCH,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    OUT_OF_ORDER_SEQUENCE,
    PRODUCER_FENCED,
    REQUEST_TIMED_OUT,
    UNKNOWN_PRODUCER_ID,
    UNKNOWN_SERVER_ERROR,
    MalformedAnswerError,
    error_of,
)
from topicfs.cluster.topics.producer_ids import ProducerIdentity, ProducerIds
from topicfs.cluster.topics.sent_batches import (
    FIRST_VERSION_BY_ID,
    Produced,
    SentAppend,
    SentBatch,
    SentBatches,
)
from topicfs.protocol.messages import LIST_OFFSETS, PRODUCE
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.codec.batch import set_producer
from topicfs.storage.codec.binary.fields import CONTROL_MASK, CURRENT_MAGIC, TRANSACTIONAL_MASK
from topicfs.storage.codec.headers import Codec, sequence_plus
from topicfs.storage.codec.records import compress_batches
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import (
    ClusterError,
    InvalidRecordError,
    InvalidTransactionStateError,
    PartitionGoneError,
    PartitionOfflineError,
    PartlyAppendedError,
    StorageError,
)
from topicfs.storage.model import NO_TIMESTAMP, Appended, Isolation, Offset, Timestamp, TopicPartition
from topicfs.storage.validation.batches import Incoming, compression_of, read_batches
from topicfs.storage.wire import Values

ACKS_ALL = -1
ACKS_LEADER = 1
REPLICATION_SHARE = 0.8
"""Share of an answer's time limit that a leader may wait for its replicas."""
MAX_PRODUCER_ID_ATTEMPTS = 3
"""Number of producer ids with which a batch is sent before a leader's refusal of its sequence number counts."""
MOST_SENT = 5
"""Most batches that are sent before the first is answered: so many of a producer a broker knows again."""
REMEMBERED_SECONDS = 600.0
"""Time after an append for which a leader certainly knows its producer (`producer.id.expiration.ms` is a day)."""
ANSWER_VALID_SECONDS = 0.01
"""Time for which an append's answer stands for what its partition's leader could be asked: where more is appended, it answers again."""

_FROM_ZERO = bytes(8)
"""The base offset of a batch that a client sends: the leader assigns the real one."""
_FORGOTTEN = frozenset((OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID, PRODUCER_FENCED))
"""The leader knows another state of the producer than the producer itself: what it appended last was lost, or cleaned away."""
_DOUBTFUL = frozenset((UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND))
"""Answers after which the batch may be in the log."""


class Production(NamedTuple):
    ids: ProducerIds
    codec: Codec | None = None
    """The codec of the batches made here; None: as their topic says."""


class PartitionProducer:
    """Appends to one partition. Safe from any thread: calls take turns."""

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: str,
        *,
        leaders: Leaders,
        production: Production,
        ask_config: Callable[[], TopicConfig],
        known: KnownBounds,
    ) -> None:
        """Make the producer; `ask_config` returns the topic's settings and may wait."""
        self._partition, self._topic_id = partition, topic_id
        self._leaders, self._known = leaders, known
        self._ids, self._codec = production
        self._ask_config = ask_config
        self._turn = threading.Lock()
        self._identity: ProducerIdentity | None = None
        self._next_sequence = 0
        self._remembered: tuple[ProducerIdentity | None, float] = (None, 0.0)
        """The identity that the leader knows, and until when by the clock of `time.monotonic`."""
        self._appended_end = Offset(0)
        """The end of the records appended here, exclusive."""
        self._alone = True
        """True while nobody else appends, as far as known: then the bounds after an append need not be asked for."""
        self._sent = SentBatches(leaders, partition, topic_id)

    def append(self, batches: bytearray, *, durable: bool, encoded_here: bool = False) -> Appended:
        """Append batches in turn (blocking); with `durable` as many replicas have them as the topic asks for.

        Those that were `encoded_here` are compressed first; others were compressed as their producer chose.

        Raises InvalidRecordError and what else the leader refuses, PartlyAppendedError, PartitionOfflineError,
        PartitionGoneError.
        """
        batches, incoming = self._read(batches, encoded_here=encoded_here)
        with self._in_turn():
            self._end_sent()
            answers: list[Produced] = []
            for batch in incoming:
                try:
                    answers.append(self._append(batches, batch, durable=durable))
                except StorageError as error:
                    if not answers:
                        raise
                    raise PartlyAppendedError(
                        str(error), appended=len(answers), batches=len(incoming)
                    ) from error
        return _appended(answers, incoming)

    def begin(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> SentAppend:
        """Send batches behind those that were sent before, and wait for no answer (blocking).

        Nothing is sent if `unless` returns True once it is their turn. What `append` raises for the sake of the batches is
        raised here, the rest by what is returned.
        """
        batches, incoming = self._read(batches, encoded_here=encoded_here)
        begun = [SentBatch(batches, batch, durable=durable) for batch in incoming]
        append = SentAppend(begun, self._end)
        with self._in_turn():
            for one in begun:
                self._make_room()
                if append.failed or unless():
                    one.outcome = PartitionOfflineError(
                        f"{self._partition}: an append before this one failed"
                    )
                    continue
                try:
                    self._send(one)
                except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the end is told
                    one.outcome = error
        return append

    def _make_room(self) -> None:
        """Wait until another batch can be sent behind those that were: for all of them, unless their connection takes it."""
        if not self._sent.ready:
            self._end_sent()
        while len(self._sent) >= MOST_SENT:
            self._end_oldest()

    def _send(self, one: SentBatch) -> None:
        """Send a batch, with the next sequence number; where it cannot be sent now, append it.

        Of a producer that it does not know a leader takes whatever number comes first, and so would take a batch though it
        has refused the one before.
        """
        self._number(one.batches, one.batch)
        one.sequence = self._next_sequence
        self._next_sequence = sequence_plus(one.sequence, one.records)
        identity, until = self._remembered
        if identity != self._identity or time.monotonic() > until:
            self._again([*self._sent.given_up(), one])
            return
        with memoryview(one.batches)[one.batch.position : one.batch.position + one.batch.size_bytes] as data:
            sent = self._sent.send(one, lambda by_id: self._request(data, durable=one.durable, by_id=by_id))
        if not sent:
            self._again([*self._sent.given_up(), one])

    def _end(self, begun: Sequence[SentBatch]) -> Appended:
        """Return what became of batches. Raises what `append` does."""
        if any(one.outcome is None for one in begun):
            # However long others take: a batch that was sent has an end, and nothing else than that may be told of it.
            with self._turn:
                while any(one.outcome is None for one in begun):
                    self._end_oldest()
        answers = [one.outcome for one in begun if isinstance(one.outcome, Produced)]
        errors = [one.outcome for one in begun if isinstance(one.outcome, Exception)]
        if errors and answers:
            [error, *_] = errors
            raise PartlyAppendedError(str(error), appended=len(answers), batches=len(begun)) from error
        if errors:
            raise errors[0]
        return _appended(answers, [one.batch for one in begun])

    def _end_sent(self) -> None:
        """Learn what became of everything that was sent."""
        while self._sent:
            self._end_oldest()
        self._sent.close()

    def _end_oldest(self) -> None:
        """Learn what became of the oldest batch that was sent; of all of them, where it is not simply in the log."""
        answer: Produced | None = None
        with suppress(ClusterError):
            one, said, leader = self._sent.answer()
            answer = self._answer(said, leader)
        if answer is None or answer.error not in (0, DUPLICATE_SEQUENCE):
            self._again(self._sent.given_up())
            return
        self._sent.ended()
        one.outcome = answer
        self._learn(answer, one.batch, durable=one.durable, more=bool(self._sent))

    def _again(self, batches: Sequence[SentBatch]) -> None:
        """Append batches that have no answer, or not the right one: the same bytes, each when the one before is answered.

        Where one cannot be appended, those behind it are dropped. The broker may still have them before it: no batch is
        numbered as they are any more.
        """
        self._next_sequence = batches[0].sequence
        for number, one in enumerate(batches):
            try:
                one.outcome = self._append(one.batches, one.batch, durable=one.durable, doubtful=one.sent)
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the end is told
                # What a batch is refused for is no fault of those behind it, which may be other files'.
                unavailable = isinstance(error, (PartitionGoneError, PartitionOfflineError))
                because = PartitionOfflineError(
                    f"{self._partition}: an append before this one failed: {error}"
                )
                one.outcome = error
                for behind in batches[number + 1 :]:
                    behind.outcome = error if unavailable else because
                self._give_up_identity()
                return

    def _read(self, batches: bytearray, *, encoded_here: bool) -> tuple[bytearray, list[Incoming]]:
        """Return batches as they are sent, compressed if they are to be. Raises InvalidRecordError."""
        if encoded_here:
            batches = self._compressed(batches)
        incoming = read_batches(batches, check_crc=not encoded_here)
        for batch in incoming:
            _check(batch)
        return batches, incoming

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        begin, leaders = time.monotonic(), self._leaders
        while not self._turn.acquire(timeout=leaders.patience_seconds):
            if not leaders.brokers.throttled_since(leaders.metadata.leader(self._partition).node, begin):
                raise PartitionOfflineError(
                    f"{self._partition}: appends before this one wait for the cluster"
                )
            begin = time.monotonic()
        try:
            yield
        finally:
            self._turn.release()

    def sync(self) -> None:
        """Wait until the appended records are replicated as the topic asks for (blocking). Raises PartitionOfflineError."""
        deadline, backoff = time.monotonic() + self._leaders.patience_seconds, Backoff()
        while self._known.bounds.high_watermark < self._appended_end:
            bounds = ask_leader_for_bounds(self._leaders, self._partition, self._topic_id)
            self._known.learn(bounds)
            if bounds.high_watermark >= self._appended_end:
                return
            pause = backoff.next()
            if time.monotonic() + pause > deadline:
                raise PartitionOfflineError(
                    f"{self._partition}: offset {self._appended_end - 1} is not replicated within "
                    f"{self._leaders.patience_seconds:g} s"
                )
            self._leaders.pause(pause, str(self._partition))

    def _compressed(self, batches: bytearray) -> bytearray:
        """Return the batches in the codec that was chosen, else in their topic's: the broker need not compress them again."""
        config = self._ask_config()
        codec, level = compression_of(config) if self._codec is None else (self._codec, None)
        if not codec:
            return batches
        limit = config.max_message_bytes
        return compress_batches(batches, codec, level=level, max_batch_bytes=limit) or batches

    def _append(
        self, batches: bytearray, batch: Incoming, *, durable: bool, doubtful: bool = False
    ) -> Produced:
        """Append one batch, with the next sequence number; `doubtful` means that it may be in the log already."""
        records = batch.last_offset - batch.base_offset + 1
        for _ in range(MAX_PRODUCER_ID_ATTEMPTS):
            self._number(batches, batch)
            with memoryview(batches)[batch.position : batch.position + batch.size_bytes] as data:
                answer = self._produce(data, records, durable=durable, doubtful=doubtful)
            if answer.error not in _FORGOTTEN:
                break
            self._give_up_identity()
        if answer.error and answer.error != DUPLICATE_SEQUENCE:
            raise error_of(answer.error, str(self._partition), answer.message)
        self._next_sequence = sequence_plus(self._next_sequence, records)
        self._learn(answer, batch, durable=durable)
        return answer

    def _number(self, batches: bytearray, batch: Incoming) -> None:
        if self._identity is None:
            self._identity, self._next_sequence = self._ids.current(), 0
        set_producer(
            batches,
            batch.position,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._next_sequence,
        )
        batches[batch.position : batch.position + len(_FROM_ZERO)] = _FROM_ZERO

    def _give_up_identity(self) -> None:
        if self._identity is not None:
            self._ids.give_up(self._identity)
            self._identity = None

    def _produce(self, data: memoryview, records: int, *, durable: bool, doubtful: bool) -> Produced:
        """Return the leader's answer to a batch, an error if no other attempt would mend it.

        What leaves it open whether the batch is in the log ends the producer's id here.
        """

        def attempt(leader: Leader) -> Produced:
            nonlocal doubtful
            with self._leaders.brokers.connection(leader.node, seconds=ATTEMPT_SECONDS) as connection:
                before, doubtful = doubtful, True
                by_id = connection.version(PRODUCE) >= FIRST_VERSION_BY_ID
                asked = [(PRODUCE, self._request(data, durable=durable, by_id=by_id))]
                if not (durable and self._alone):
                    offsets = offsets_request(
                        [self._partition], LATEST, Isolation.READ_COMMITTED, ATTEMPT_SECONDS
                    )
                    asked.append((LIST_OFFSETS, offsets))
                said, then = connection.call_all(*asked, seconds=ATTEMPT_SECONDS)
            answer = self._answer(said, leader)
            doubtful = before or answer.error in _DOUBTFUL
            return answer._replace(last_stable_offset=self._stable_end(then[0], leader) if then else None)

        try:
            answer = self._leaders.ask(self._partition, self._topic_id, attempt)
        except StorageError as error:
            if doubtful:
                self._give_up_identity()
            if doubtful and isinstance(error, PartitionOfflineError):
                many = f"{records} records" if records > 1 else "the record"
                raise type(error)(f"{error}; nobody knows if {many} will be in the log") from None
            raise
        except BaseException:
            self._give_up_identity()
            raise
        if answer.error and doubtful:
            self._give_up_identity()
        return answer

    def _request(self, data: memoryview, *, durable: bool, by_id: bool) -> Values:
        topic = {"topicId": decode_id(self._topic_id)} if by_id else {"name": self._partition.topic}
        return {
            "transactionalId": None,
            "acks": ACKS_ALL if durable else ACKS_LEADER,
            "timeoutMs": int(ATTEMPT_SECONDS * REPLICATION_SHARE * 1000),
            "topicData": [
                {**topic, "partitionData": [{"index": self._partition.partition, "records": data}]}
            ],
        }

    def _answer(self, said: Values, leader: Leader) -> Produced:
        for topic in said["responses"]:
            for one in topic["partitionResponses"]:
                if one["index"] == self._partition.partition:
                    return Produced(
                        one["errorCode"],
                        Offset(one["baseOffset"]),
                        Timestamp(one["logAppendTimeMs"]),
                        Offset(one["logStartOffset"]),
                        leader.epoch,
                        message=_reason(one),
                    )
        raise MalformedAnswerError(f"{self._partition}: the answer to Produce says nothing of it")

    def _stable_end(self, answer: Values | None, leader: Leader) -> Offset | None:
        if answer is None:
            return None
        try:
            found = bounds_of(answer, leader.node, [self._partition], LATEST)[self._partition]
        except MalformedAnswerError:  # The batch is in the log all the same.
            return None
        return None if found.error else found.offset

    def _ask_bounds(self) -> None:
        """Ask the leader once for the bounds after an append that did not tell them."""
        leader = self._leaders.metadata.leader(self._partition)
        with suppress(StorageError):
            found = ask_bounds(
                self._leaders.brokers, leader.node, {self._partition: leader.epoch}, seconds=ATTEMPT_SECONDS
            ).get(self._partition)
            if isinstance(found, PartitionBounds):
                self._known.learn(found)

    def _learn(self, answer: Produced, batch: Incoming, *, durable: bool, more: bool = False) -> None:
        """Derive the bounds from an append's answer, so that its records can be read at once; they need not be if `more` is under way."""
        self._remembered = (self._identity, time.monotonic() + REMEMBERED_SECONDS)
        if answer.error or answer.base_offset < 0:
            self._known.moved()
            return
        end = Offset(answer.base_offset + batch.last_offset - batch.base_offset + 1)
        self._appended_end = max(self._appended_end, end)
        # Where all before the batch is decided, so is the batch itself once it is replicated.
        before = self._known.bounds
        adjoins = (
            before.last_stable_offset >= answer.base_offset and before.leader_epoch == answer.leader_epoch
        )
        stable = answer.last_stable_offset
        if stable is None and durable and adjoins:
            stable = end
        elif stable is None:
            if not more:
                self._ask_bounds()
            stable = Offset(0)
        self._alone = adjoins
        replicated = end if durable else stable
        start = max(answer.log_start_offset, Offset(0))
        stamped = answer.append_time != NO_TIMESTAMP
        self._known.note_append(
            answer.append_time if stamped else Timestamp(batch.max_timestamp),
            time.monotonic() + ANSWER_VALID_SECONDS if durable and adjoins else 0.0,
        )
        if stable or self._known.unknown is None:  # Otherwise nothing is known of the records before it.
            bounds = PartitionBounds(start, stable, max(stable, replicated), answer.leader_epoch)
            with suppress(StorageError):  # The batch is in the log, whatever becomes of other questions.
                self._known.learn(bounds, proven=False)
        if stable < end:
            self._known.moved()


def _appended(answers: Sequence[Produced], batches: Sequence[Incoming]) -> Appended:
    first, last = answers[0], answers[-1]
    delta = batches[-1].last_offset - batches[-1].base_offset
    return Appended(
        first.base_offset, Offset(last.base_offset + delta), last.append_time, last.log_start_offset
    )


def _check(batch: Incoming) -> None:
    """Raise InvalidRecordError for a batch that no broker takes, before anything is sent."""
    if batch.magic != CURRENT_MAGIC:
        raise InvalidRecordError(f"batch of format {batch.magic}; only format 2 is taken")
    if batch.attributes & CONTROL_MASK:
        raise InvalidRecordError("control batches come from coordinators, not from clients")
    if batch.attributes & TRANSACTIONAL_MASK:
        raise InvalidTransactionStateError("a transactional batch, and no transaction to append it in")
    if batch.records != batch.last_offset - batch.base_offset + 1:
        raise InvalidRecordError(
            f"batch of {batch.records} records with a last offset delta of {batch.last_offset - batch.base_offset}"
        )


def _reason(answer: Values) -> str | None:
    """Return the broker's own words for a refusal."""
    texts = [one["batchIndexErrorMessage"] for one in answer["recordErrors"]]
    said: str | None = answer["errorMessage"]
    return next((text for text in texts if text), said)
