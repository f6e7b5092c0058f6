"""What views must show, by the plainest means: every visible record rendered by itself, and joined."""

from __future__ import annotations

from collections.abc import Container

from tests.doubles.memory_partition import MemoryPartition
from topicfs.fusefs.forms import VALUES, Form
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import View
from topicfs.storage.codec.columns import decode
from topicfs.storage.model import Isolation, TopicPartition


def content(
    partition: MemoryPartition,
    form: Form = VALUES,
    *,
    start: int | None = None,
    end: int | None = None,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> bytes:
    """The rendering of [start, end), by default of all that is visible."""
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
    """Batches of three records, `value 0.0` and on; a segment ends after each of the batches named."""
    partition = MemoryPartition()
    for number in range(batches):
        partition.add(*[b"value %d.%d" % (number, part) for part in range(3)])
        if number in rolled_after:
            partition.roll()
    return partition


def read_all(view: View, *, step: int = 4096) -> bytes:
    """Everything a new reader gets, step by step."""
    reader, parts, position = ViewReader(view), [], 0
    while part := reader.read(position, step):
        parts.append(part)
        position += len(part)
    return b"".join(parts)
