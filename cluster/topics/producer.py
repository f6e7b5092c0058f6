"""Appends batches to partitions of a cluster, exactly once, even if a batch has to be sent several times.

    append ─► a batch, with the next sequence number ─► its leader ─► its offset
                        ▲                                  │ no answer, or another broker leads now
                        └── the same bytes again ──────────┘

A request contains one batch for a partition. Brokers recognize a repeated batch by its producer id and sequence
number (kafka-storage.md#sequences). If it stays unknown whether a batch was appended, the partition continues with a
new producer id, so that the leader cannot refuse later batches as repeated or out of order. A batch that was encoded
elsewhere may have a producer id already. That id is replaced: the batch is a copy, and its original producer does not
write here.
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
from topicfs.storage import errors
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.codec.batch import set_producer
from topicfs.storage.codec.binary.fields import CONTROL_MASK, CURRENT_MAGIC, TRANSACTIONAL_MASK
from topicfs.storage.codec.headers import Codec, sequence_plus
from topicfs.storage.codec.records import compress_batches
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.model import NO_TIMESTAMP, Appended, Isolation, Offset, Timestamp, TopicPartition
from topicfs.storage.validation.batches import Incoming, compression_of, read_batches
from topicfs.storage.wire import Values

ACKS_ALL = -1
ACKS_LEADER = 1
REPLICATION_SHARE = 0.8
"""Share of a request's time limit that a leader may use to wait for its replicas."""
MAX_PRODUCER_ID_ATTEMPTS = 3
"""How many producer ids to try before the leader's refusal of a sequence number counts as final."""
MAX_SENT_BATCHES = 5
"""Maximum number of unanswered batches. A broker remembers this many batches of a producer to recognize repeats."""
PRODUCER_KNOWN_SECONDS = 600.0
"""Time after an append during which the leader certainly still knows the producer. By default, a broker remembers a
producer for a day (`producer.id.expiration.ms`).
"""
ANSWER_VALID_SECONDS = 0.01
"""How long the bounds from an append's answer are used before bounds are requested. A busy producer appends again
within this time, and the next answer has new bounds.
"""

_FROM_ZERO = bytes(8)
"""The base offset in a sent batch. The leader replaces it by the real offset."""
_FORGOTTEN = frozenset((OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID, PRODUCER_FENCED))
"""Errors after which the producer needs a new id: the leader has lost or deleted its state of the producer, or knows
a newer epoch of the producer.
"""
_DOUBTFUL = frozenset((UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND))
"""Errors that leave open whether the batch is in the log."""


class Production(NamedTuple):
    ids: ProducerIds
    codec: Codec | None = None
    """The codec for batches encoded by this engine; None: the topic's codec."""


class PartitionProducer:
    """Appends to one partition. Safe from any thread, one call at a time."""

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
        """Make the producer. `ask_config` returns the topic's settings and may wait."""
        self._partition, self._topic_id = partition, topic_id
        self._leaders, self._known = leaders, known
        self._ids, self._codec = production
        self._ask_config = ask_config
        self._turn = threading.Lock()
        self._identity: ProducerIdentity | None = None
        self._next_sequence = 0
        self._remembered: tuple[ProducerIdentity | None, float] = (None, 0.0)
        """The producer identity that the leader knows, and the time (`time.monotonic`) until which the leader
        certainly remembers this identity.
        """
        self._appended_end = Offset(0)
        """The exclusive end of the records that this producer appended."""
        self._alone = True
        """True while no other producer seems to append. The answer to an append then gives the new bounds."""
        self._sent = SentBatches(leaders, partition, topic_id)

    def append(self, batches: bytearray, *, durable: bool, encoded_here: bool = False) -> Appended:
        """Append batches (blocking); with `durable` wait for as many replicas as the topic requires.

        Batches that were `encoded_here` are compressed first; others keep the compression of their producer.

        Raises InvalidRecordError and errors for other refusals of the leader, PartlyAppendedError,
        PartitionOfflineError, PartitionGoneError.
        """
        batches, incoming = self._read(batches, encoded_here=encoded_here)
        with self._in_turn():
            self._end_sent()
            answers: list[Produced] = []
            for batch in incoming:
                try:
                    answers.append(self._append(batches, batch, durable=durable))
                except errors.StorageError as error:
                    if not answers:
                        raise
                    raise errors.PartlyAppendedError(
                        str(error), appended=len(answers), batches=len(incoming)
                    ) from error
        return _appended(answers, incoming)

    def begin(
        self, batches: bytearray, *, durable: bool, encoded_here: bool, unless: Callable[[], bool]
    ) -> SentAppend:
        """Send batches after the batches sent earlier, without waiting for answers (blocking).

        Calls `unless` right before sending, and sends nothing if it returns True. Raises the errors of `append` for
        invalid batches. The returned object raises later errors.
        """
        batches, incoming = self._read(batches, encoded_here=encoded_here)
        begun = [SentBatch(batches, batch, durable=durable) for batch in incoming]
        append = SentAppend(begun, self._end)
        with self._in_turn():
            for one in begun:
                self._make_room()
                if append.failed or unless():
                    one.outcome = errors.PartitionOfflineError(
                        f"{self._partition}: an append before this one failed"
                    )
                    continue
                try:
                    self._send(one)
                except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the end is told
                    one.outcome = error
        return append

    def _make_room(self) -> None:
        """Wait until another batch can be sent: if the connection is unusable, until all sent batches are answered."""
        if not self._sent.ready:
            self._end_sent()
        while len(self._sent) >= MAX_SENT_BATCHES:
            self._end_oldest()

    def _send(self, one: SentBatch) -> None:
        """Send a batch with the next sequence number. If it cannot be sent now, append it after the unanswered batches.

        A leader accepts any first sequence number from an unknown producer. The leader could therefore accept this
        batch after it refused the previous batch. For this reason an unknown producer's batches are appended one by
        one.
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
        """Return the result of batches that were sent. Raises the errors of `append`."""
        if any(one.outcome is None for one in begun):
            # Wait without limit: only the answer shows the result of a batch that was sent.
            with self._turn:
                while any(one.outcome is None for one in begun):
                    self._end_oldest()
        answers = [one.outcome for one in begun if isinstance(one.outcome, Produced)]
        failures = [one.outcome for one in begun if isinstance(one.outcome, Exception)]
        if failures and answers:
            [error, *_] = failures
            raise errors.PartlyAppendedError(str(error), appended=len(answers), batches=len(begun)) from error
        if failures:
            raise failures[0]
        return _appended(answers, [one.batch for one in begun])

    def _end_sent(self) -> None:
        """Wait for the results of all sent batches."""
        while self._sent:
            self._end_oldest()
        self._sent.close()

    def _end_oldest(self) -> None:
        """Take the answer to the oldest sent batch. After a failure, append all unanswered batches again."""
        answer: Produced | None = None
        with suppress(errors.ClusterError):
            one, said, leader = self._sent.answer()
            answer = self._answer(said, leader)
        if answer is None or answer.error not in (0, DUPLICATE_SEQUENCE):
            self._again(self._sent.given_up())
            return
        self._sent.ended()
        one.outcome = answer
        self._learn(answer, one.batch, durable=one.durable, more=bool(self._sent))

    def _again(self, batches: Sequence[SentBatch]) -> None:
        """Append the batches again, one by one: each has the same bytes, and is sent after the previous answer.

        If a batch fails, the later batches are not sent again. The first attempt may have appended them, so the
        producer id is given up.
        """
        self._next_sequence = batches[0].sequence
        for number, one in enumerate(batches):
            try:
                one.outcome = self._append(one.batches, one.batch, durable=one.durable, doubtful=one.sent)
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the end is told
                # The later batches may come from other files. They fail as well, but with an error that names
                # this one.
                unavailable = isinstance(error, (errors.PartitionGoneError, errors.PartitionOfflineError))
                because = errors.PartitionOfflineError(
                    f"{self._partition}: an append before this one failed: {error}"
                )
                one.outcome = error
                for behind in batches[number + 1 :]:
                    behind.outcome = error if unavailable else because
                self._give_up_identity()
                return

    def _read(self, batches: bytearray, *, encoded_here: bool) -> tuple[bytearray, list[Incoming]]:
        """Return the batches to send, compressed if they were `encoded_here`. Raises InvalidRecordError."""
        if encoded_here:
            batches = self._compressed(batches)
        incoming = read_batches(batches, check_crc=not encoded_here)
        for batch in incoming:
            _check(batch)
        return batches, incoming

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        begin, leaders = time.monotonic(), self._leaders
        while not self._turn.acquire(timeout=leaders.timeout_seconds):
            if not leaders.brokers.throttled_since(leaders.metadata.leader(self._partition).node, begin):
                raise errors.PartitionOfflineError(
                    f"{self._partition}: earlier appends still wait for an answer of the cluster"
                )
            begin = time.monotonic()
        try:
            yield
        finally:
            self._turn.release()

    def sync(self) -> None:
        """Wait until appended records are replicated as the topic requires (blocking). Raises PartitionOfflineError."""
        deadline, backoff = time.monotonic() + self._leaders.timeout_seconds, Backoff()
        while self._known.bounds.high_watermark < self._appended_end:
            bounds = ask_leader_for_bounds(self._leaders, self._partition, self._topic_id)
            self._known.learn(bounds)
            if bounds.high_watermark >= self._appended_end:
                return
            pause = backoff.next()
            if time.monotonic() + pause > deadline:
                raise errors.PartitionOfflineError(
                    f"{self._partition}: offset {self._appended_end - 1} is not replicated within "
                    f"{self._leaders.timeout_seconds:g} s"
                )
            self._leaders.pause(pause, str(self._partition))

    def _compressed(self, batches: bytearray) -> bytearray:
        """Return the batches compressed with the given codec or the topic's, so that the broker need not compress."""
        config = self._ask_config()
        codec, level = compression_of(config) if self._codec is None else (self._codec, None)
        if not codec:
            return batches
        limit = config.max_message_bytes
        return compress_batches(batches, codec, level=level, max_batch_bytes=limit) or batches

    def _append(
        self, batches: bytearray, batch: Incoming, *, durable: bool, doubtful: bool = False
    ) -> Produced:
        """Append one batch with the next sequence number. `doubtful`: the batch may already be in the log."""
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
        """Return the leader's answer, perhaps a permanent error. If the result is unknown, give up the producer id."""

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
        except errors.StorageError as error:
            if doubtful:
                self._give_up_identity()
            if doubtful and isinstance(error, errors.PartitionOfflineError):
                many = f"{records} records" if records > 1 else "the record"
                raise type(error)(f"{error}; {many} may be in the log") from None
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
        raise MalformedAnswerError(f"{self._partition}: the answer to Produce does not mention it")

    def _stable_end(self, answer: Values | None, leader: Leader) -> Offset | None:
        if answer is None:
            return None
        try:
            found = bounds_of(answer, leader.node, [self._partition], LATEST)[self._partition]
        except MalformedAnswerError:  # Ignore the error: the batch is in the log.
            return None
        return None if found.error else found.offset

    def _ask_bounds(self) -> None:
        """Ask the leader for the bounds that the answer to an append did not give. Do not retry; ignore errors."""
        leader = self._leaders.metadata.leader(self._partition)
        with suppress(errors.StorageError):
            found = ask_bounds(
                self._leaders.brokers, leader.node, {self._partition: leader.epoch}, seconds=ATTEMPT_SECONDS
            ).get(self._partition)
            if isinstance(found, PartitionBounds):
                self._known.learn(found)

    def _learn(self, answer: Produced, batch: Incoming, *, durable: bool, more: bool = False) -> None:
        """Derive the partition's bounds from an append's answer, so that readers see its records.

        If the answer does not give all bounds, ask for them. With `more`, do not ask, because another answer follows.
        """
        self._remembered = (self._identity, time.monotonic() + PRODUCER_KNOWN_SECONDS)
        if answer.error or answer.base_offset < 0:
            self._known.moved()
            return
        end = Offset(answer.base_offset + batch.last_offset - batch.base_offset + 1)
        self._appended_end = max(self._appended_end, end)
        # If all earlier records are stable, the batch is stable once it is replicated.
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
        if stable or self._known.unknown is None:  # If neither holds, nothing is known about earlier records.
            bounds = PartitionBounds(start, stable, max(stable, replicated), answer.leader_epoch)
            with suppress(errors.StorageError):  # The batch is in the log, even if later requests fail.
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
    """Raise InvalidRecordError, before anything is sent, for a batch that every broker refuses."""
    if batch.magic != CURRENT_MAGIC:
        raise errors.InvalidRecordError(f"batch of format {batch.magic}; only format 2 is accepted")
    if batch.attributes & CONTROL_MASK:
        raise errors.InvalidRecordError("control batches come from coordinators, not from clients")
    if batch.attributes & TRANSACTIONAL_MASK:
        raise errors.InvalidTransactionStateError("a transactional batch outside of a transaction")
    if batch.records != batch.last_offset - batch.base_offset + 1:
        raise errors.InvalidRecordError(
            f"batch of {batch.records} records with a last offset delta of {batch.last_offset - batch.base_offset}"
        )


def _reason(answer: Values) -> str | None:
    """Return the broker's reason for a refusal."""
    texts = [one["batchIndexErrorMessage"] for one in answer["recordErrors"]]
    said: str | None = answer["errorMessage"]
    return next((text for text in texts if text), said)
