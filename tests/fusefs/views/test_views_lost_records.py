"""Open files of a log that lost records in an unclean election after it had shown them."""

from __future__ import annotations

import pytest

from tests.doubles.memory_partition import MemoryPartition
from topicfs.fusefs.forms import JSON, KV, VALUES, Form
from topicfs.fusefs.views.merged_stream import MergedRange, MergedReader
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.rendering import FIRST_FETCH_BYTES
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.errors import SegmentDeletedError
from topicfs.storage.model import Isolation, Offset

FORMS = pytest.mark.parametrize("form", [VALUES, KV, JSON], ids=lambda form: form.suffix or "log")
OVERTAKEN = pytest.mark.parametrize("overtaken", [False, True])


def partition_with(*values: bytes) -> MemoryPartition:
    partition = MemoryPartition()
    partition.directory = None  # As in a cluster.
    for value in values:
        partition.add(value)
    return partition


def lose(partition: MemoryPartition, offset: int, *, overtaken: bool = True) -> None:
    partition.lose(offset)
    for number in range(9 if overtaken else 0):
        partition.add(b"new %d" % number)


@FORMS
@OVERTAKEN
def test_a_reader_at_the_end_is_stale(form: Form, overtaken: bool) -> None:
    """If a reader has read records that are now lost, its next read fails, with or without new records.

    A new view shows the new log.
    """
    partition = partition_with(b"a", b"b", b"c")
    views = PartitionViews(partition)
    view = views.whole(form)
    reader = ViewReader(view)
    before = reader.read(0, 1000)
    size = view.size
    lose(partition, 1, overtaken=overtaken)

    for position in (len(before), len(before), len(before) - 1, 1):
        with pytest.raises(SegmentDeletedError):
            reader.read(position, 1000)
    assert (len(before), size) == (size, view.size)
    after = views.whole(form)
    expected = ViewReader(PartitionViews(partition).whole(form)).read(0, 10_000)
    assert (expected, len(expected)) == (ViewReader(after).read(0, 10_000), after.size)


@FORMS
def test_a_reader_that_got_no_lost_records_reads_up_to_the_truncation(form: Form) -> None:
    """A reader that got no lost records can read the earlier records again, and then gets an error."""
    first = b"a" * FIRST_FETCH_BYTES
    partition = partition_with(first, b"b", b"c")
    reader = ViewReader(PartitionViews(partition).whole(form))
    begun = reader.read(0, 100)
    lose(partition, 2)

    assert begun == reader.read(0, 100)
    with pytest.raises(SegmentDeletedError):
        reader.read(0, 10 * FIRST_FETCH_BYTES)


@FORMS
@OVERTAKEN
def test_a_reader_gets_the_records_before_the_truncation(form: Form, overtaken: bool) -> None:
    """A reader gets the records before the truncation and then an error, even if it had read nothing before."""
    partition = partition_with(b"a" * FIRST_FETCH_BYTES, b"b", b"c", b"d")
    views = PartitionViews(partition)
    left = ViewReader(views.range(form, Offset(0), Offset(2))).read(0, 2 * FIRST_FETCH_BYTES)
    readers = [(ViewReader(views.whole(form)), begun) for begun in (0, 100)]
    for reader, begun in readers:
        assert left[:begun] == reader.read(0, begun)
    lose(partition, 2, overtaken=overtaken)

    for reader, begun in readers:
        assert left[begun:] == reader.read(begun, 2 * FIRST_FETCH_BYTES, short_at_damage=True)
        if overtaken:
            with pytest.raises(SegmentDeletedError):
                reader.read(len(left), 1000, short_at_damage=True)


def test_a_range_below_the_cut_reads_on() -> None:
    """A range that ends before the lost records can be read on."""
    partition = partition_with(b"a", b"b", b"c", b"d")
    reader = ViewReader(PartitionViews(partition).range(VALUES, Offset(0), Offset(2)))
    lose(partition, 2)

    assert [b"a\nb\n", b""] == [reader.read(0, 100), reader.read(4, 100)]


def read_on(stream: MergedReader, position: int) -> None:
    """Read to the end, and check that only the records before the truncation are returned."""
    while stream.reach(position, 1000):
        data = stream.read(position, 1000)
        assert b"" == data.strip(b"a\n")
        position += len(data)
        if not data:
            return


@OVERTAKEN
def test_a_merged_stream_is_stale_after_the_cut(overtaken: bool) -> None:
    """A merged stream fails after the truncation, even if it is read from its start again."""
    partition = partition_with(b"a" * 300_000, b"b" * 300_000, b"c")
    stream = MergedReader([MergedRange(partition, Offset(0), Offset(3))], VALUES, Isolation.READ_COMMITTED)
    assert stream.reach(0, 100)
    lose(partition, 1, overtaken=overtaken)

    for position in (600_000, 0):
        with pytest.raises(SegmentDeletedError):
            read_on(stream, position)
