"""Partitions in memory, the expected content of their views, and reads of whole views."""

from __future__ import annotations

from collections.abc import Container

from tests.doubles.memory_partition import MemoryPartition
from topicfs.fusefs.forms import VALUES, Form
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.records import find_record
from topicfs.fusefs.views.view import View
from topicfs.storage.codec.columns import decode
from topicfs.storage.codec.records import FoundRecord
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Isolation, Offset, TopicPartition


def content(
    partition: MemoryPartition,
    form: Form = VALUES,
    *,
    start: int | None = None,
    end: int | None = None,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> bytes:
    """Return the rendering of the records from `start` to just before `end`; by default, of all visible records."""
    offsets = partition.offsets()
    first = offsets.log_start_offset if start is None else start
    last = offsets.visible_end(isolation)
    last = last if end is None else min(last, end)
    return b"".join(
        form.render(columns, TopicPartition(partition.topic, partition.number), first, last)
        for segment in partition.memory_segments
        for columns in decode(bytes(segment.data))
    )


def numbered(batches: int, *, rolled_after: Container[int]) -> MemoryPartition:
    """Return a partition with `batches` batches of three records.

    A segment ends after each batch whose number is in `rolled_after`.
    """
    partition = MemoryPartition()
    for number in range(batches):
        partition.add(*[b"value %d.%d" % (number, part) for part in range(3)])
        if number in rolled_after:
            partition.roll()
    return partition


def one_by_one(count: int, value: bytes = b"line %d") -> MemoryPartition:
    """Return a partition with `count` batches of one record; `value` contains the number of the record."""
    partition = MemoryPartition()
    for number in range(count):
        partition.add(value % number)
    return partition


def found_in(
    partition: Partition, offset: int, isolation: Isolation = Isolation.READ_COMMITTED
) -> FoundRecord:
    """Return the record at an offset, which must exist."""
    found = find_record(partition, Offset(offset), isolation=isolation)
    assert found is not None
    return found


def reads(view: View, step: int) -> list[bytes | CorruptionError]:
    """Return the data or the error of each read of a new reader, which continues after errors, up to the end."""
    reader, found, position = ViewReader(view), list[bytes | CorruptionError](), 0
    while True:
        try:
            part = bytes(reader.read(position, step, short_at_damage=True))
        except CorruptionError as error:
            found.append(error)
            continue
        if not part:
            return found
        found.append(part)
        position += len(part)


def joined(found: list[bytes | CorruptionError]) -> bytes:
    """Return the data of reads, without their errors."""
    return b"".join(part for part in found if isinstance(part, bytes))


def read_all(view: View, *, step: int = 4096) -> bytes:
    """Return all data that a new reader gets in reads of `step` bytes."""
    reader, parts, position = ViewReader(view), [], 0
    while part := reader.read(position, step):
        parts.append(part)
        position += len(part)
    return b"".join(parts)
