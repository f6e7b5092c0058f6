"""Chunks: the text of several records, with the position in the text at which each record ends."""

from __future__ import annotations

import pytest

from tests.doubles.memory_partition import MemoryPartition
from topicfs.fusefs.forms import BATCH, JSON, KV, VALUES, Form
from topicfs.fusefs.groups.chunks import Chunk, ChunkReader, RecordEnd
from topicfs.fusefs.views.measure import Source
from topicfs.storage.errors import SegmentDeletedError
from topicfs.storage.model import Isolation, Offset, Record, Timestamp


def reader(partition: MemoryPartition, form: Form = VALUES, offset: int = 0) -> ChunkReader:
    return ChunkReader(Source(partition, form, Isolation.READ_COMMITTED, partition.cuts), Offset(offset))


def all_chunks(chunks: ChunkReader, end_offset: int) -> list[Chunk]:
    found = []
    while (chunk := chunks.next(Offset(end_offset))) is not None:
        found.append(chunk)
    return found


def places(chunk: Chunk) -> list[RecordEnd]:
    """Return the ends of all records of the chunk, as found from every position in its text."""
    return sorted({chunk.at_or_before(position) for position in range(len(chunk.text) + 1)})


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (VALUES, [(0, 0), (3, 1), (6, 2), (7, 3)]),
        (KV, [(0, 0), (6, 1), (12, 2), (18, 3)]),
    ],
    ids=["values", "kv"],
)
def test_each_records_end_is_known(form: Form, expected: list[RecordEnd]):
    """A chunk knows where each record ends: an LF inside a value ends no record, and a null value is a line."""
    partition = MemoryPartition()
    partition.add(b"a\n" if form is VALUES else b"ab", b"bc", None)

    (chunk,) = all_chunks(reader(partition, form), 3)

    assert expected == places(chunk)


@pytest.mark.parametrize("form", [VALUES, KV])
def test_two_lines_of_one_value_are_not_mistaken_for_two_records(form: Form):
    """If offsets are missing, the two lines of one value are not mistaken for two records."""
    partition = MemoryPartition()
    partition.add(b"a", b"b")
    partition.log_end_offset += 1  # As after the marker of a transaction.
    partition.add(b"c\nd" if form is VALUES else b"c")

    chunks = all_chunks(reader(partition, form), 4)
    found = [end.offset for chunk in chunks for end in places(chunk)]

    assert {1, 2, 4} == set(found) - {0}


def test_json_lines_end_at_their_lf():
    """In JSON each line is one record."""
    partition = MemoryPartition()
    partition.add(b"a", b"b")

    (chunk,) = all_chunks(reader(partition, JSON), 2)
    first = bytes(chunk.text).index(b"\n") + 1

    assert [(0, 0), (first, 1), (len(chunk.text), 2)] == places(chunk)


def test_whole_batches_are_returned():
    """Whole batches are returned, even if the group's position lies inside a batch."""
    partition = MemoryPartition()
    partition.add(b"a", b"b")
    partition.add(b"c")
    whole = bytes(reader(partition, BATCH).next(Offset(3)).text)
    size = len(partition.read(Offset(2), max_bytes=1).data)

    (chunk,) = all_chunks(reader(partition, BATCH, 1), 3)

    assert whole == chunk.text
    assert [(0, 1), (len(whole) - size, 2), (len(whole), 3)] == places(chunk)


def test_it_begins_and_ends_within_a_batch():
    """A chunk can begin and end in the middle of a batch, because the position of a group can be any offset."""
    partition = MemoryPartition()
    partition.add(b"a", b"b", b"c", b"d")

    (chunk,) = all_chunks(reader(partition, offset=1), 3)

    assert (b"b\nc\n", [(0, 1), (2, 2), (4, 3)]) == (chunk.text, places(chunk))


def test_offsets_that_compaction_left_out():
    """After a record, the next offset is one above the record's offset.

    After the last record of a chunk, the next offset is the one after the gap that compaction left.
    """
    partition = MemoryPartition()
    kept = [Record(Offset(o), Timestamp(1), b"k", v) for o, v in ((2, b"x"), (5, b"y"))]
    partition.add_compacted(kept, last_offset=8)

    (chunk,) = all_chunks(reader(partition), 9)

    assert [(0, 0), (2, 3), (4, 9)] == places(chunk)


def test_markers_are_skipped():
    """Markers before and after the records have no text. The next offset is the one after the last marker."""
    partition = MemoryPartition()
    partition.add_marker()
    partition.add(b"a")
    partition.add_marker()
    chunks = reader(partition)

    found = all_chunks(chunks, 3)

    assert [b"a\n"] == [bytes(chunk.text) for chunk in found]
    assert 3 == chunks.next_offset


def test_records_above_the_end_are_returned_when_the_end_moves():
    """Records above the end are returned after the end has moved on, even if their batch was fetched before."""
    partition = MemoryPartition()
    partition.add(b"a", b"b", b"c")
    for form in (VALUES, KV):
        chunks = reader(partition, form)
        lines = [chunk.text for end in (1, 2, 3) for chunk in all_chunks(chunks, end)]
        assert 3 == len(lines), form
        assert 3 == chunks.next_offset


def test_a_damaged_batch_is_given_as_its_error():
    """A damaged batch is a separate chunk that has the error; the records before and after it are returned."""
    partition = MemoryPartition()
    partition.add(b"a")
    partition.add(b"b")
    partition.add(b"c")
    partition.damage(1)

    first, damaged, last = all_chunks(reader(partition), 3)

    assert (b"a\n", b"", b"c\n") == (first.text, damaged.text, last.text)
    assert "checksum" in str(damaged.error)
    assert (1, 2) == (damaged.start_offset, damaged.end_offset)


def test_records_that_are_gone():
    """Reading deleted records raises SegmentDeletedError."""
    partition = MemoryPartition()
    partition.add(b"a", b"b")
    partition.log_start_offset = 1

    with pytest.raises(SegmentDeletedError):
        reader(partition).next(Offset(2))


def test_the_end_of_a_record_that_was_begun():
    """`at_or_after(position)` returns the end of the record that contains the position.

    If a record ends exactly at the position, the position itself is returned.
    """
    partition = MemoryPartition()
    partition.add(b"abc", b"d")
    for form in (VALUES, JSON):
        (chunk,) = all_chunks(reader(partition, form), 2)
        first = places(chunk)[1].position
        assert [0, first, first, first] == [chunk.at_or_after(p) for p in (0, 1, first - 1, first)]
        assert len(chunk.text) == chunk.at_or_after(first + 1)
