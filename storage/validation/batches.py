"""The leader's checks before it assigns offsets: all batches pass, or none (kafka-storage.md#append-validation)."""

from collections.abc import Container, Sequence
from typing import NamedTuple, Self

from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import CONTROL_MASK, CURRENT_MAGIC, ROW_SIZE, TIMESTAMP_TYPE_MASK
from topicfs.storage.codec.headers import Batches, Codec
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from topicfs.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from topicfs.storage.model import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, Offset, TimestampType
from topicfs.storage.producers.append import Origin

NO_LIMIT = 2**63 - 1
"""Default of message.timestamp.before.max.ms; with this value the setting refuses no record."""


class AppendRules(NamedTuple):
    """The rules for an append that follow from a topic's settings."""

    max_message_bytes: int
    max_segment_bytes: int
    max_segment_ms: int
    stamps_append_time: bool
    needs_keys: bool
    """True if each record must have a key, because the topic is compacted."""
    before_max_ms: int
    after_max_ms: int
    codec: Codec | None
    """The codec that all batches in the log have; None: each batch keeps its producer's codec."""
    compression_level: int | None
    reads_records: bool
    """True if an append must read the records, because batch headers do not have all that must be checked."""
    accepts_own_batches: bool
    """True if batches that this process just made only need their offsets and the topic's codec."""

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        codec, level = compression_of(config)
        stamps = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        reads = config.compacts or (config.message_timestamp_before_max_ms < NO_LIMIT and not stamps)
        return cls(
            codec=codec,
            compression_level=level,
            max_message_bytes=config.max_message_bytes,
            max_segment_bytes=config.effective_segment_bytes,
            max_segment_ms=config.effective_segment_ms,
            stamps_append_time=stamps,
            needs_keys=config.compacts,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            reads_records=reads,
            accepts_own_batches=not stamps and not reads,
        )


def compression_of(config: TopicConfig) -> tuple[Codec | None, int | None]:
    """Return codec and level of compression.type; None for the producer's codec, or for the codec's default level."""
    if config.compression_type == "producer":
        return None, None
    if config.compression_type == "uncompressed":
        return Codec.NONE, None
    codec = Codec[config.compression_type.upper()]
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return codec, levels.get(codec)


def for_accepted(rules: AppendRules) -> AppendRules:
    """Return the rules for the remaining batches of a write whose checks have passed: no limit refuses a batch."""
    return rules._replace(
        max_message_bytes=NO_LIMIT,
        max_segment_bytes=NO_LIMIT,
        needs_keys=False,
        before_max_ms=NO_LIMIT,
        after_max_ms=NO_LIMIT,
        reads_records=False,
        accepts_own_batches=not rules.stamps_append_time,
    )


class Incoming(NamedTuple):
    """One batch of an append, as described by its header."""

    position: int
    size_bytes: int
    base_offset: int
    """The base offset as received. A leader assigns another base offset."""
    last_offset: int
    records: int
    max_timestamp: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    magic: int


def check_as_leader(batches: bytearray, rules: AppendRules, origin: Origin = Origin.CLIENT) -> list[Incoming]:
    """Check and return an append's batches. Raises InvalidRecordError, InvalidTimestampError, RecordTooLargeError."""
    if len(batches) > rules.max_segment_bytes:
        raise RecordTooLargeError(
            f"{len(batches)} bytes in one append, segment.bytes is {rules.max_segment_bytes}; append less at once"
        )
    incoming = read_batches(batches)
    for batch in incoming:
        _check_header(batch, rules)
        if origin is Origin.CLIENT:
            _check_client(batch)
    return incoming


def check_as_follower(batches: Buffer, end_offset: int) -> list[Incoming]:
    """Return an append's batches. Raises InvalidRecordError unless the leader's offsets ascend from `end_offset` on."""
    incoming = read_batches(batches)
    for batch in incoming:
        # The header of a compressed batch of an old format has only the last offset.
        first_offset = batch.base_offset if batch.magic == CURRENT_MAGIC else batch.last_offset
        if first_offset < end_offset:
            raise InvalidRecordError(f"batch at offset {first_offset}, but the log ends at {end_offset}")
        end_offset = batch.last_offset + 1
    return incoming


def first_offset(incoming: Sequence[Incoming]) -> Offset:
    """Return the offset at which an append begins.

    A compressed batch of an old format stores only its last offset. The append then begins at the lowest offset that
    can share a segment with its last record (kafka-storage.md#rolling).
    """
    first = incoming[0]
    if first.magic < CURRENT_MAGIC:
        return Offset(max(0, incoming[-1].last_offset - MAX_RELATIVE_OFFSET))
    return Offset(first.base_offset)


def read_batches(batches: Buffer, *, check_crc: bool = True) -> list[Incoming]:
    """Return whole batches, at least one; with `check_crc`, verify their checksums. Raises InvalidRecordError."""
    scanned = scan(batches, check_crc=check_crc)
    if scanned.problem is not None:
        raise InvalidRecordError(f"not a record batch: {scanned.problem}")
    if not len(scanned):
        raise InvalidRecordError("an append without a record batch")
    return incoming_of(scanned)


def drop_batches(
    batches: bytearray, incoming: Sequence[Incoming], positions: Container[int]
) -> tuple[bytearray, list[Incoming]]:
    """Return copies of the batches that do not begin at one of `positions`, and their headers."""
    kept = bytearray()
    moved = []
    for batch in incoming:
        if batch.position not in positions:
            moved.append(batch._replace(position=len(kept)))
            kept += batches[batch.position : batch.position + batch.size_bytes]
    return kept, moved


def incoming_of(scanned: Batches) -> list[Incoming]:
    """Return scanned headers as `Incoming` values."""
    rows = scanned.rows.tolist()
    # The columns have the order of the fields of storage.codec.headers.BatchHeader.
    return [
        Incoming(
            rows[at],
            rows[at + 1],
            rows[at + 2],
            rows[at + 3],
            rows[at + 13],
            rows[at + 9],
            rows[at + 7],
            rows[at + 10],
            rows[at + 11],
            rows[at + 12],
            rows[at + 4],
            rows[at + 5],
        )
        for at in range(0, len(rows), ROW_SIZE)
    ]


def _check_header(batch: Incoming, rules: AppendRules) -> None:
    if batch.magic != CURRENT_MAGIC:
        raise InvalidRecordError(f"batch of format {batch.magic}; only format 2 is accepted")
    if batch.size_bytes > rules.max_message_bytes:
        raise RecordTooLargeError(
            f"batch of {batch.size_bytes} bytes, max.message.bytes is {rules.max_message_bytes}"
        )
    delta = batch.last_offset - batch.base_offset
    if batch.records != delta + 1:  # The scan has already refused negative deltas.
        raise InvalidRecordError(f"batch of {batch.records} records with a last offset delta of {delta}")
    marked = batch.attributes & TIMESTAMP_TYPE_MASK
    if marked and (rules.stamps_append_time or batch.max_timestamp == NO_TIMESTAMP):
        raise InvalidTimestampError("batch marked LogAppendTime; only the log may set that, not a producer")


def check_times(incoming: Sequence[Incoming], rules: AppendRules, now: int) -> None:
    """Raise InvalidTimestampError if a batch is too far in the future. The batches' headers must be right."""
    for batch in incoming:
        if not rules.stamps_append_time and batch.max_timestamp - now > rules.after_max_ms:
            raise InvalidTimestampError(
                f"timestamp {batch.max_timestamp} is more than message.timestamp.after.max.ms="
                f"{rules.after_max_ms} after now, {now}"
            )


def _check_client(batch: Incoming) -> None:
    if batch.attributes & CONTROL_MASK:
        raise InvalidRecordError("control batches come from coordinators, not from clients")
    if batch.producer_id != NO_PRODUCER_ID and batch.base_sequence < 0:
        raise InvalidRecordError(
            f"batch of producer {batch.producer_id} with sequence {batch.base_sequence}; "
            "a producer numbers its records from 0"
        )
