"""Prints a segment's `.log` like kafka-dump-log: a line per batch and, if requested, a line per record."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from topicfs.inspection.dump.decoders import RecordDecoder, decode_record
from topicfs.inspection.dump.report import DumpReport, optional_long
from topicfs.storage.codec.batch import scan, verify_checksum
from topicfs.storage.codec.binary.fields import CURRENT_MAGIC
from topicfs.storage.codec.columns import Columns, decode
from topicfs.storage.codec.control import ControlType, control_type, read_marker
from topicfs.storage.codec.headers import BatchHeader, sequence_plus
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptBatchError, CorruptionError, InvalidNameError, TornBatchError
from topicfs.storage.model import Offset, Position, Record

UNLIMITED_BYTES = 2**31 - 1
BEFORE_FIRST = Offset(-1)
"""The offset that Kafka's tool assumes before a file's first record, whatever the file's base offset is."""

FILE_START = Position(0)

CHECKED_FROM = 16
"""Position in an entry of the old formats at which the bytes under the checksum begin. The checksum is stored before
it.
"""

KEY_POSITION = (22, 30)
"""Position of the key's bytes in an entry of the old formats, indexed by its magic."""

BATCHES_AT_A_TIME = 1024
"""Number of batch headers kept in memory. The limit matters for a 1 GiB segment of small batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of kafka-dump-log, under the same names."""

    print_data_log: bool = False
    """Print the key and value of each record; implies `deep_iteration`."""
    decoder: RecordDecoder | None = None
    """Decode keys and values as records of a coordinator's topic; implies `print_data_log`."""
    deep_iteration: bool = False
    """Print a line per record, not only per batch."""
    skip_record_metadata: bool = False
    """Do not print a record's metadata, only its key and value."""
    verify_index_only: bool = False
    """Only compare indexes with their segment, without printing entries."""
    index_sanity_check: bool = False
    """Only do the check that a broker does of each index when it starts."""
    max_bytes: int = UNLIMITED_BYTES
    """Maximum number of bytes read from a segment."""
    max_message_size: int = 5 * 1024 * 1024
    """Largest batch, in bytes, that an index entry may point to."""

    @property
    def records(self) -> bool:
        return self.deep_iteration or self.contents

    @property
    def contents(self) -> bool:
        return self.print_data_log or self.decoder is not None


def base_offset_of(path: Path) -> Offset:
    """Return the base offset in a segment file's name. Raises InvalidNameError."""
    digits = path.name.partition(".")[0]
    if not (digits.isascii() and digits.isdecimal()):
        raise InvalidNameError(
            f"{path}: not a segment: its name must be its base offset, such as 00000000000000000000.log"
        )
    return Offset(int(digits))


def dump_log(path: Path, options: DumpOptions, files: FileSystem, report: DumpReport) -> Iterator[str]:
    """Print a segment's batches, and how many bytes follow. Raises CorruptionError for damaged records or batches."""
    with closing(files.open(path, read_only=True)) as file:
        yield f"Log starting offset: {base_offset_of(path)}"
        size = file.size()
        data = file.map(min(size, options.max_bytes))
        position = Position(0)
        last_offset = BEFORE_FIRST
        for header in batches(data, path):
            position = header.end_position
            yield batch_line(header, valid=is_valid(data, header))
            for columns in spans(data, header, path) if options.records else ():
                for index, record in enumerate(columns):
                    if record.offset != last_offset + 1:
                        report.gaps[str(path)][last_offset] = record.offset
                    last_offset = record.offset
                    checksum = entry_checksum(columns, index, header.magic)
                    yield record_line(record, header, options, checksum)
        if position < size and options.max_bytes == UNLIMITED_BYTES:
            yield f"Found {size - position} invalid bytes at the end of {path.name}"


def batches(data: memoryview, path: Path, start: Position = FILE_START) -> Iterator[BatchHeader]:
    """Yield headers of whole batches, up to a torn tail. Raises CorruptionError if damage hides the next batch."""
    while True:
        found = scan(data, start, max_batches=BATCHES_AT_A_TIME)
        yield from found
        start = Position(found.stop)
        if found.problem is not None and not isinstance(found.problem, TornBatchError):
            raise CorruptionError(path, found.problem.position, found.problem.cause)
        if len(found) < BATCHES_AT_A_TIME:
            return


def is_valid(data: memoryview, header: BatchHeader) -> bool:
    try:
        verify_checksum(data, header)
    except CorruptBatchError:
        return False
    return True


def records(data: memoryview, header: BatchHeader, path: Path) -> Iterator[Record]:
    """Yield the records of one batch, including control records. Raises CorruptionError."""
    for columns in spans(data, header, path):
        yield from columns


def spans(data: memoryview, header: BatchHeader, path: Path) -> list[Columns]:
    """Return the records of one batch as columns. Raises CorruptionError."""
    try:
        return decode(data, header.position, header.end_position, check_crc=False, control=True)
    except CorruptBatchError as error:
        raise error.in_file(path, error.position) from error


def entry_checksum(columns: Columns, index: int, magic: int) -> str | None:
    """Return, as text, the checksum of an entry in an old format, also of a wrapped entry; None for the newest format."""
    if magic >= CURRENT_MAGIC:
        return None
    start = columns.key_positions[index] - KEY_POSITION[magic]
    end = columns.value_positions[index] + max(columns.value_lengths[index], 0)
    stored = int.from_bytes(columns.data[start + CHECKED_FROM - 4 : start + CHECKED_FROM], "big")
    valid = stored == zlib.crc32(columns.data[start + CHECKED_FROM : end])
    return f"isValid: {_boolean(valid)} crc: {stored}"


def batch_line(header: BatchHeader, *, valid: bool) -> str:
    """Format a batch as a line. For the old formats, the line shows only what their headers contain."""
    if header.magic >= 2:
        start = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_boolean(header.is_transactional)} "
            f"isControl: {_boolean(header.is_control)} "
            f"deleteHorizonMs: {optional_long(header.delete_horizon_ms)}"
        )
    else:
        start = f"offset: {header.last_offset}"
    return (
        f"{start} position: {header.position} {timestamp_type(header)}: {header.max_timestamp} "
        f"size: {header.size_bytes} magic: {header.magic} compresscodec: {header.codec.label} "
        f"crc: {header.checksum} isvalid: {_boolean(valid)}"
    )


def record_line(
    record: Record, header: BatchHeader, options: DumpOptions, checksum: str | None = None
) -> str:
    """Format a record and its content as a line. Raises InvalidRecordError if the decoder cannot read the record."""
    parts = [] if options.skip_record_metadata else list(_metadata(record, header, checksum))
    if options.contents and not header.is_control:
        parts += _contents(record, options.decoder)
    return f"| {' '.join(parts)}" if parts else ""


def _contents(record: Record, decoder: RecordDecoder | None) -> Iterator[str]:
    key, payload = (None if data is None else _text(data) for data in (record.key, record.value))
    if decoder is not None:
        key, payload = decode_record(record, decoder)
    if key is not None:
        yield f"key: {key}"
    if payload is not None:
        yield f"payload: {payload}"


def timestamp_type(header: BatchHeader) -> str:
    """Return the timestamp type as Kafka's enum prints it. The oldest format has no timestamp type."""
    return header.timestamp_type.label if header.magic >= 1 else "NoTimestampType"


def _metadata(record: Record, header: BatchHeader, checksum: str | None) -> Iterator[str]:
    yield f"offset: {record.offset} {timestamp_type(header)}: {record.timestamp}"
    yield f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    if checksum is not None:
        yield checksum
    else:
        keys = ",".join(_text(name.key) for name in record.headers)
        yield f"sequence: {_sequence(record, header)} headerKeys: [{keys}]"
    if header.is_control:
        yield _control(record)


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return header.base_sequence
    return sequence_plus(header.base_sequence, record.offset - header.base_offset)


def _control(record: Record) -> str:
    """Return a control record's type; for the end of a transaction also the coordinator's epoch."""
    kind = control_type(record.key)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return f"endTxnMarker: {kind.name} coordinatorEpoch: {read_marker(record).coordinator_epoch}"
    assert record.key is not None
    return f"controlType: {kind.name}({int.from_bytes(record.key[2:4], 'big', signed=True)})"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _boolean(value: bool) -> str:
    return "true" if value else "false"
