"""A damaged batch made again of the records that an archive has of it, where the bytes can be proven to be those that were there.

    what is damaged    ████▒████████ │ crc │ header │ records          the archive has the records, and no bytes
    made again                              header │ records           accepted only if this is proven

An archive has no batches: where one ended, who produced it, and how it was compressed is taken from the damaged batch, or
from the one before. What was made of it counts in two cases (kafka-storage.md#batch-header):

1. it has the checksum that the damaged batch bears: then what is damaged is not the checksum, and is put right;
2. nothing of it is taken from the damaged batch, and it is what that has under its checksum, byte for byte: then what is
   damaged is the checksum, or a field before it.

Base offset and leader epoch are under no checksum. The leader epochs of the log say the one; the other, where it is not what
the damaged batch says, must lead exactly to the batch behind. In any other case the batch stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from topicfs.storage.checkpoints.leader_epochs import epoch_for_offset
from topicfs.storage.codec.binary.crc import crc32c
from topicfs.storage.codec.binary.fields import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.compression.codecs import deflate, inflate
from topicfs.storage.codec.headers import BatchHeader, BatchStamp, Codec, sequence_plus
from topicfs.storage.codec.records import encode
from topicfs.storage.errors import CorruptBatchError, RecordTooLargeError, StorageError
from topicfs.storage.model import NO_LEADER_EPOCH, Offset, Record, Timestamp, TopicPartition
from topicfs.storage.scrub.verdict import Bounds, judge_first

MOST_OFFSETS = 1 << 20
"""A batch that claims to have more is not looked for: its bounds are damaged."""

_NO_OFFSETS = "its offsets cannot be told"

_FRAME = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, checksum."""
_FIELDS = struct.Struct(">HiqqqhiI")
"""The fields under the checksum: see `_Fields`."""


class ArchivedRecord(NamedTuple):
    """A record of an archive."""

    record: Record
    timestamp_type: int
    """0: the producer's time; 1: the time of the append."""


class RecordArchive(Protocol):
    """Records by their offsets, kept somewhere else."""

    @property
    def name(self) -> str:
        """Its place, for people."""
        ...

    def records(
        self, partition: TopicPartition, start_offset: int, end_offset: int, /
    ) -> Sequence[ArchivedRecord]:
        """Return what it has of a range, ascending by offset, each once (StorageError, OSError; blocking)."""
        ...


class PartitionArchive(NamedTuple):
    """An archive, and the partition of which its records are wanted."""

    archive: RecordArchive
    partition: TopicPartition


class NotProvenError(StorageError):
    """The bytes of a batch cannot be proven by what an archive has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBatch:
    """A batch that no replica has sound, and what is known around it."""

    partition: TopicPartition
    read: Callable[[int], bytes | None]
    """Returns so many bytes from its beginning on, fewer at the end of the segment; None where the disk cannot read them."""
    bounds: Bounds
    following: Callable[[int], int | None]
    """Returns the base offset of what follows so many bytes behind its beginning; None where that is not known."""
    before: BatchHeader | None
    """The batch before it in the segment."""
    codec: tuple[Codec | None, int | None]
    """Codec and level of the topic; None: what the producer chose, or the codec's own."""


class _Fields(NamedTuple):
    """The header under the checksum, in its order."""

    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def proven_batch(archive: RecordArchive, damaged: DamagedBatch) -> bytes:
    """Return the bytes that were there (blocking). Raises NotProvenError with the reason, StorageError, OSError."""
    head = damaged.read(HEADER_SIZE)
    if head is None or len(head) < HEADER_SIZE:
        raise NotProvenError("its checksum cannot be read, which could prove what the archive has")
    attempt = _Attempt(archive, damaged, head)
    found = attempt.batches()
    if len(found) > 1:
        raise NotProvenError("the archive's records fit at more than one offset there")
    if not found:
        raise NotProvenError(attempt.reason)
    return found[0]


class _Attempt:
    """An attempt to make a batch of an archive's records, and the proof of it."""

    def __init__(self, archive: RecordArchive, damaged: DamagedBatch, head: bytes) -> None:
        self._archive = archive
        self._damaged = damaged
        self._base, length, self._epoch, _, self._checksum = _FRAME.unpack_from(head)
        self._size = length + LOG_OVERHEAD
        """As the damaged batch says."""
        self._stored = _Fields(*_FIELDS.unpack_from(head, ATTRIBUTES_POSITION))
        self.reason = _NO_OFFSETS

    def batches(self) -> list[bytes]:
        """Return each batch that is proven."""
        bounds = self._damaged.bounds
        bases = [bounds.start_offset]
        if bounds.start_offset < self._base < bounds.end_offset:
            bases.append(self._base)
        return list(dict.fromkeys(batch for base in bases for batch in self._at(base)))

    def _at(self, base: int) -> Iterator[bytes]:
        for last in self._lasts(base):
            archived = self._archive.records(self._damaged.partition, base, last + 1)
            if not archived:
                self.reason = (
                    self.reason
                    if self.reason != _NO_OFFSETS
                    else (
                        f"it has no record of the offsets {base} to {last}: they came after it was made, or are markers "
                        "of transactions, or of one that was aborted"
                    )
                )
                continue
            self.reason = (
                f"a batch of its {len(archived)} records of the offsets {base} to {last} has another checksum"
            )
            for batch in self._made(base, last, archived):
                if self._fits(base, batch):
                    yield batch

    def _lasts(self, base: int) -> Iterator[int]:
        """Yield the last offsets that it may have: by its own header, and by what follows it."""
        following = self._damaged.following(self._size) if self._size > HEADER_SIZE else None
        own = base + self._stored.last_offset_delta
        for last in dict.fromkeys((own, -1 if following is None else following - 1)):
            if base <= last < min(self._damaged.bounds.end_offset, base + MOST_OFFSETS):
                yield last

    def _made(self, base: int, last: int, archived: Sequence[ArchivedRecord]) -> Iterator[bytes]:
        """Yield what is proven by the checksum, or by all bytes under it."""
        records = [one.record for one in archived]
        if archived[
            0
        ].timestamp_type:  # Their producers' times are not known: that of the append took their place.
            records = [one._replace(timestamp=Timestamp(0)) for one in records]
        bodies: dict[tuple[int, int], list[tuple[bytes, bool]]] = {}
        for fields, derived in self._headers(base, last, archived):
            under = _FIELDS.pack(*fields)
            key = fields.attributes & CODEC_MASK, 0 if archived[0].timestamp_type else fields.base_timestamp
            if key not in bodies:
                bodies[key] = list(self._bodies(records, *key, base, last))
            for body, made_here in bodies[key]:
                checksum = crc32c(body, crc32c(under))
                everywhere = derived and made_here and self._is_there(under + body, last)
                if checksum == self._checksum or everywhere:
                    size = HEADER_SIZE + len(body) - LOG_OVERHEAD
                    yield (
                        _FRAME.pack(base, size, self._epoch_at(base), CURRENT_MAGIC, checksum) + under + body
                    )

    def _headers(
        self, base: int, last: int, archived: Sequence[ArchivedRecord]
    ) -> Iterator[tuple[_Fields, bool]]:
        """Yield the headers that it may have had; true: nothing of it is taken from the damaged batch."""
        times = [one.record.timestamp for one in archived]
        stored = self._stored._replace(last_offset_delta=last - base, record_count=len(archived))
        yield stored, False
        known = stored._replace(base_timestamp=times[0], max_timestamp=max(times))
        for base_timestamp, max_timestamp in (
            (stored.base_timestamp, max(times)),
            (times[0], stored.max_timestamp),
        ):
            yield stored._replace(base_timestamp=base_timestamp, max_timestamp=max_timestamp), False
        yield known, False
        for producer in self._producers():
            yield stored._replace(**producer), False
            for attributes in self._attributes(archived[0].timestamp_type, producer["producer_id"]):
                yield stored._replace(attributes=attributes), False
                yield known._replace(attributes=attributes, **producer), True

    def _producers(self) -> Iterator[dict[str, int]]:
        """Yield none, and the producer of the batch before with its next sequence number."""
        yield {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
        before = self._damaged.before
        if before is not None and before.producer_id >= 0 and before.base_sequence >= 0:
            count = before.last_offset - before.base_offset + 1
            yield {
                "producer_id": before.producer_id,
                "producer_epoch": before.producer_epoch,
                "base_sequence": sequence_plus(before.base_sequence, count),
            }

    def _attributes(self, timestamp_type: int, producer_id: int) -> Iterator[int]:
        """Yield the attributes that follow from the topic's codec, or that of the batch before, and the producer."""
        before = self._damaged.before
        codecs = {self._damaged.codec[0] or Codec.NONE}
        marks = 0
        if before is not None and not before.attributes & CONTROL_MASK:
            codecs.add(Codec(before.attributes & CODEC_MASK))
            marks = before.attributes & TRANSACTIONAL_MASK if producer_id >= 0 else 0
        for codec in sorted(codecs):
            yield codec | (timestamp_type and TIMESTAMP_TYPE_MASK) | marks

    def _bodies(
        self, records: Sequence[Record], codec: int, base_timestamp: int, base: int, last: int
    ) -> Iterator[tuple[bytes, bool]]:
        """Yield the records as they were written: plain, or compressed as here (true), or as they are there if those are the records."""
        if codec > max(Codec):
            return
        # A batch's base timestamp is that of its first record, or the horizon that compaction has set: both go into that field.
        stamp = BatchStamp(delete_horizon_ms=Timestamp(base_timestamp))
        try:
            plain = bytes(encode(records, stamp, base_offset=base, last_offset=last))[HEADER_SIZE:]
            if not codec:
                yield plain, True
                return
            known, level = self._damaged.codec
            yield bytes(deflate(Codec(codec), plain, level=level if known == codec else None)), True
            stored = self._damaged.read(self._size) if HEADER_SIZE < self._size <= MAX_CONTENT_BYTES else None
            if stored is not None and bytes(inflate(Codec(codec), stored[HEADER_SIZE:])) == plain:
                yield stored[HEADER_SIZE:], False
        except (ValueError, OverflowError, RecordTooLargeError, CorruptBatchError):
            return

    def _is_there(self, under: bytes, last: int) -> bool:
        """Return whether the damaged batch has these bytes under its checksum, and nothing else: the next offset follows."""
        size = ATTRIBUTES_POSITION + len(under)
        stored = self._damaged.read(size)
        return (
            stored is not None
            and stored[ATTRIBUTES_POSITION:] == under
            and self._damaged.following(size) == last + 1
        )

    def _epoch_at(self, base: int) -> int:
        known = epoch_for_offset(self._damaged.bounds.epochs, Offset(base))
        return self._epoch if known is None or self._epoch == NO_LEADER_EPOCH else known

    def _fits(self, base: int, batch: bytes) -> bool:
        """Return whether a batch is sound where it is to be, and its base offset is known."""
        header, _ = judge_first(batch, self._damaged.bounds)
        if header is None:
            return False
        following = self._damaged.following(len(batch))
        if base != self._base:
            if following == header.end_offset:
                return True
            self.reason = "its base offset is damaged, and does not follow from the batch behind"
            return False
        gap = base != self._damaged.bounds.start_offset
        return not gap or following is None or following >= header.end_offset
