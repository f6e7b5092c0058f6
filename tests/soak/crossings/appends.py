"""Appends of all kinds: plain, by idempotent producers with repeats, in transactions, and refused ones."""

from __future__ import annotations

from random import Random

from tests.soak.crossings.machine import Crossing, TopicModel
from tests.soak.crossings.model import Batch, PartitionModel
from tests.soak.crossings.producers import SEQUENCES, Answers, ProducerModel
from tests.soak.crossings.settings import EXTREME_TIMES, LONG_MAX, LONG_MIN
from topicfs.storage.codec.control import ControlType, EndTransactionMarker, encode_marker
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Partition
from topicfs.storage.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    StorageError,
)
from topicfs.storage.log.log import Log
from topicfs.storage.model import Header, Offset, ProducerId, Record, Timestamp, TimestampType
from topicfs.storage.producers.append import Origin

IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12, 13)
KEYS = (b"a", b"b", b"c", b"", b"key of more bytes", None)


def append_plain(crossing: Crossing, chance: Random) -> str:
    """Append one to three batches without a producer."""
    batches = [Batch(draw_records(crossing, chance)) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    return append(crossing, chance, batches)


def append_of_producer(crossing: Crossing, chance: Random) -> str:
    """Append a batch of an idempotent producer.

    The batch is the producer's next one, a repetition, a batch after a gap in the sequence, or one of an old epoch.
    """
    return _append_of(crossing, chance, chance.choice(IDEMPOTENT), transactional=False)


def append_in_transaction(crossing: Crossing, chance: Random) -> str:
    """Append a batch to a producer's transaction, and begin the transaction if necessary."""
    return _append_of(crossing, chance, chance.choice(TRANSACTIONAL), transactional=True)


def _append_of(crossing: Crossing, chance: Random, producer_id: int, *, transactional: bool) -> str:
    target = crossing.pick(chance)
    known = target[1].producers.by_id.get(producer_id) or ProducerModel(epoch=-1)
    kind = chance.choices(
        ("next", "repeat", "gap", "old", "new epoch", "repeat and next"), (12, 4, 1, 1, 1, 2)
    )[0]
    epoch, sequence = max(known.epoch, 0), known.next_sequence
    if known.epoch < 0 and chance.random() < 0.2:
        sequence = SEQUENCES - chance.randint(1, 3)
    if kind == "repeat and next" and not known.known:
        kind = "repeat"
    batches = []
    if kind.startswith("repeat") and known.batches:
        earlier = chance.choice(known.batches)
        batches.append(Batch(_again(earlier), producer_id, epoch, earlier.sequence, transactional))
    elif kind == "gap":
        sequence = (sequence + chance.choice((1, 5, SEQUENCES - 1))) % SEQUENCES
    elif kind == "old" and epoch > 0:
        epoch -= 1
    elif kind == "new epoch" and known.open_since is None:
        epoch, sequence = epoch + 1, 0
    if not batches or kind == "repeat and next":
        records = draw_records(crossing, chance)
        batches.append(Batch(records, producer_id, epoch, sequence, transactional))
    return f"{kind}: {append(crossing, chance, batches, target)}"


def _again(batch: Batch) -> list[Record]:
    return [record._replace(offset=Offset(index)) for index, record in enumerate(batch.records)]


def end_transaction(crossing: Crossing, chance: Random) -> str:
    """Append a coordinator's marker for an open transaction, sometimes repeatedly or with a newer epoch."""
    _, model, partition = crossing.pick(chance)
    known = [
        (producer_id, one)
        for producer_id, one in sorted(model.producers.by_id.items())
        if producer_id in TRANSACTIONAL and (one.open_since is not None or chance.random() < 0.1)
    ]
    if not known:
        return "nothing open"
    producer_id, one = chance.choice(known)
    epoch = one.epoch + (chance.random() < 0.2)
    commit = chance.random() < 0.5
    record = Record(Offset(0), Timestamp(crossing.clock.now), None, None)
    marker = Batch([record], producer_id, epoch, transactional=True, commit=commit)
    config = partition.config
    answers = Answers(taken=True)
    done = _append(crossing, model, partition, [marker], config, answers, encoded_here=False)
    return f"{model.name}: {'commit' if commit else 'abort'} of {producer_id}/{epoch}: {done}"


def append(
    crossing: Crossing,
    chance: Random,
    batches: list[Batch],
    target: tuple[TopicModel, PartitionModel, Partition] | None = None,
) -> str:
    """Append clients' batches, and compare the result with the allowed results; raises AssertionError."""
    topic, model, partition = target or crossing.pick(chance)
    config = topic.config()
    codec = chance.choice((*Codec, Codec.NONE, Codec.NONE))
    answers = Answers(taken=True)
    if batches[0].producer_id >= 0:
        answers = model.producers.answers_to(batches[0])
    done = _append(
        crossing, model, partition, batches, config, answers, encoded_here=chance.random() < 0.5, codec=codec
    )
    return f"{model.name}: {len(batches)} batches, {codec.label}: {done}"


def _append(
    crossing: Crossing,
    model: PartitionModel,
    partition: Partition,
    batches: list[Batch],
    config: TopicConfig,
    answers: Answers,
    *,
    encoded_here: bool,
    codec: Codec = Codec.NONE,
) -> str:
    assert isinstance(partition, Log)
    parts = [encoded(batch, codec) for batch in batches]
    must, may = refusals(batches, parts, config, crossing.clock.now)
    if encoded_here and config.compression_type != "producer" and RecordTooLargeError in must:
        # This process may compress a batch before its size is checked.
        must, may = must - {RecordTooLargeError}, may | {RecordTooLargeError}
    stamps = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    model.append_time = crossing.clock.now if stamps else None
    # A repeated batch is not appended; after it, only the producer's next batch is new.
    choices = [batches] if answers.taken else []
    choices += [batches[1:]] if answers.repeats else []
    model.in_flight = choices[0] if choices else []
    origin = Origin.COORDINATOR if batches[0].is_marker else Origin.CLIENT
    try:
        done = partition.append(bytearray(b"".join(parts)), encoded_here=encoded_here, origin=origin)
    except StorageError as error:
        allowed = must | may | answers.refusals
        assert type(error) in allowed, f"{model.name}: refused: {error!r}, not one of {allowed}"
        model.in_flight = []
        crossing.counts.refusals[type(error).__name__] += 1
        return type(error).__name__
    assert not must, f"{model.name}: appended, but one of {must} had to be raised"
    if done.duplicate:
        assert done.base_offset in answers.repeats, (
            f"{model.name}: repeats {done}, expected one of {answers.repeats}"
        )
        assert 1 == len(batches), f"{model.name}: several batches count as repeated: {done}"
        model.in_flight = []
        return f"repeats {done.base_offset}"
    count = done.last_offset - done.base_offset + 1
    written = next((choice for choice in choices if sum(len(one.records) for one in choice) == count), None)
    assert written, f"{model.name}: {done}, expected one of {choices}"
    assert model.end == done.base_offset, f"{model.name}: {done}, expected base offset {model.end}"
    for batch in written:
        model.place(batch, model.append_time)
        crossing.counts.records += len(batch.records)
    assert model.end - 1 == done.last_offset, f"{model.name}: {done}, expected end {model.end}"
    model.in_flight = []
    return f"offsets {done.base_offset} to {done.last_offset}"


def refusals(
    batches: list[Batch], parts: list[bytearray], config: TopicConfig, now: int
) -> tuple[set[type[StorageError]], set[type[StorageError]]]:
    """Return two sets of errors: the append must raise one of the first set, and may raise one of the second.

    If the first set is empty, the append may succeed.
    """
    must: set[type[StorageError]] = set()
    may: set[type[StorageError]] = set()
    converts = config.compression_type != "producer"
    sizes = [len(part) for part in parts]
    if max(sizes) > config.max_message_bytes or sum(sizes) > config.effective_segment_bytes:
        must.add(RecordTooLargeError)
    raw = [len(encoded(batch, Codec.NONE)) + 100 + 8 * len(batch.records) for batch in batches]
    if converts and (max(raw) > config.max_message_bytes or sum(raw) > config.effective_segment_bytes):
        may.add(RecordTooLargeError)
    if batches[0].is_marker:
        return must, may
    records = [record for batch in batches for record in batch.records]
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        before = config.message_timestamp_before_max_ms
        earliest = LONG_MIN if before == LONG_MAX else now - before
        latest = now + config.message_timestamp_after_max_ms
        if any(one.timestamp != -1 and not earliest <= one.timestamp <= latest for one in records):
            must.add(InvalidTimestampError)
    if config.compacts and any(one.key is None for one in records):
        must.add(InvalidRecordError)
    return must, may


def encoded(batch: Batch, codec: Codec) -> bytearray:
    """Return a batch as its producer or coordinator encodes it."""
    if batch.is_marker:
        return encode_marker(
            EndTransactionMarker(ControlType.COMMIT if batch.commit else ControlType.ABORT, 0),
            timestamp=batch.records[0].timestamp,
            producer_id=ProducerId(batch.producer_id),
            producer_epoch=batch.epoch,
        )
    stamp = BatchStamp(
        codec=codec,
        producer_id=ProducerId(batch.producer_id),
        producer_epoch=batch.epoch,
        base_sequence=batch.sequence,
        transactional=batch.transactional,
    )
    return encode(batch.records, stamp)


def draw_records(crossing: Crossing, chance: Random) -> list[Record]:
    """Return one to five records, whose times are in no order."""
    compacted = chance.random() < 0.9
    return [
        Record(
            Offset(index),
            Timestamp(_draw_time(crossing, chance)),
            chance.choice(KEYS[:-1] if compacted else KEYS),
            chance.choice((None, b"", b"%d" % chance.randrange(10**9), b"x" * chance.randrange(1, 200))),
            tuple(
                Header(b"h%d" % number, chance.choice((None, b"v")))
                for number in range(chance.choice((0, 0, 0, 1, 2)))
            ),
        )
        for index in range(chance.choice((1, 1, 2, 3, 5)))
    ]


def _draw_time(crossing: Crossing, chance: Random) -> int:
    now = crossing.clock.now
    kind = chance.random()
    if kind < 0.8:
        return now - chance.choice((0, 1, 5, 1_000, 100_000, -500))
    if kind < 0.9:
        return now + chance.choice((-(10**9), -(10**7), 10**6, 3_600_000, 3_600_001, 10**8))
    if kind < 0.97:
        return chance.choice((-1, -1, 0, 1, -5, -(10**12)))
    return chance.choice(EXTREME_TIMES)
