"""Reading views: each byte at each position, through small windows."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, read_all
from topicfs.fusefs.forms import FORMS, JSON, KV, VALUES, Form
from topicfs.fusefs.views import rendering as rendering_module
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode, encode_lines
from topicfs.storage.errors import OffsetOutOfRangeError, SegmentDeletedError
from topicfs.storage.model import Header, Isolation, Offset, Record

LINE = (
    b"the quick brown fox jumps over the lazy dog, again and again and again and once more: 0123456789abc\n"
)


@pytest.fixture
def partition() -> MemoryPartition:
    """A partition with three segments of small batches, with null and empty values, and newlines in values."""
    partition = MemoryPartition()
    for number in range(30):
        partition.add(b"value %d" % number, None, b"", b"a\nb\tc\\", key=b"k%d" % number)
        if number in (9, 19):
            partition.roll()
    return partition


def lines(count: int, *, batch: int) -> MemoryPartition:
    """Return a partition with `count` numbered lines of 100 bytes, `batch` lines in each batch."""
    partition = MemoryPartition()
    for first in range(0, count, batch):
        text = b"".join(b"%07d" % number + LINE[7:] for number in range(first, first + batch))
        for encoded in encode_lines(text, timestamp=1, max_batch_bytes=2**30):
            partition.append(encoded)
    return partition


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix or ".values")
@pytest.mark.parametrize("step", [1, 7, 64, 4096, 10**6])
def test_a_view_is_the_concatenation_of_its_records(
    partition: MemoryPartition, form: Form, step: int
) -> None:
    """A view is the joined rendering of its records, in each form and with any read size; its size is exact."""
    view = PartitionViews(partition).whole(form)
    expected = content(partition, form)
    assert expected == read_all(view, step=step)
    assert len(expected) == view.size
    assert view.measured


def test_reads_at_and_beyond_the_end_are_empty(partition: MemoryPartition) -> None:
    """A read at or after the end returns no data, and a read across the end is short."""
    view = PartitionViews(partition).whole(VALUES)
    reader = ViewReader(view)
    assert b"" == reader.read(view.size, 10)
    assert b"" == reader.read(view.size + 12345678, 10)
    assert content(partition)[-3:] == reader.read(view.size - 3, 10)
    assert b"" == reader.read(0, 0)


def test_an_empty_partition_is_an_empty_file() -> None:
    """A view of an empty partition has size 0."""
    view = PartitionViews(MemoryPartition(base_offset=7)).whole(VALUES)
    assert (0, True, b"") == (view.size, view.measured, ViewReader(view).read(0, 10))


def test_a_log_that_starts_inside_a_batch_shows_that_batch_in_part(partition: MemoryPartition) -> None:
    """If the log starts inside a batch, the view begins with the first record that remains."""
    for start in range(9):
        partition.delete_records(Offset(start))
        view = PartitionViews(partition).whole(VALUES)
        assert content(partition, start=start) == read_all(view)
        assert len(content(partition, start=start)) == view.size


def test_control_batches_and_gaps_render_to_nothing() -> None:
    """Transaction markers and batches without records have no bytes in a view."""
    partition = MemoryPartition()
    partition.add_marker()
    partition.add(b"a")
    partition.add_marker()
    partition.skip_offsets(5)
    partition.add_compacted([], last_offset=20)
    partition.add(b"b")
    partition.add_marker()
    view = PartitionViews(partition).whole(VALUES)
    assert b"a\nb\n" == read_all(view)
    assert 4 == view.size


def test_nothing_above_the_visible_end_is_shown(partition: MemoryPartition) -> None:
    """read_committed ends at the last stable offset, read_uncommitted at the high watermark."""
    partition.last_stable_offset, partition.high_watermark = 57, 62
    committed = PartitionViews(partition).whole(VALUES)
    uncommitted = PartitionViews(partition, isolation=Isolation.READ_UNCOMMITTED).whole(VALUES)
    assert content(partition, end=57) == read_all(committed)
    assert content(partition, end=62, isolation=Isolation.READ_UNCOMMITTED) == read_all(uncommitted)
    partition.last_stable_offset = 58
    assert content(partition, end=58) == read_all(committed)
    assert len(content(partition, end=58)) == committed.size


def test_reading_on_renders_and_fetches_everything_once() -> None:
    """If a view is read in small steps, each batch is fetched once."""
    partition = lines(16_000, batch=160)
    assert 1_600_000 == len(read_all(PartitionViews(partition).whole(VALUES), step=5000))
    assert len(partition.memory_segments[0].data) == partition.bytes_read


@pytest.mark.parametrize("step", [4096, 100_000, 131_072, 2**20])
def test_a_sequential_reader_gets_windows_of_whole_reads(step: int) -> None:
    """A sequential reader gets each read from a single window, for any read size, so that no data must be joined."""
    partition = lines(60_000, batch=160)
    view = PartitionViews(partition).whole(VALUES)
    reader, expected, position = ViewReader(view), content(partition), 0
    while part := reader.read(position, step):
        # `view.size` may be too small here, because it only measures for a short time and uncompiled code is
        # slow.
        assert (min(step, len(expected) - position), True) == (len(part), isinstance(part, memoryview))
        assert expected[position : position + step] == bytes(part)
        position += len(part)
    assert len(expected) == position


def test_compressed_batches_and_markers_are_read_among_plain_batches() -> None:
    """Compressed batches, batches with headers, and markers can be read among plain batches, with any read size."""
    partition = MemoryPartition()
    for number in range(300):
        value = b"%d " % number * 100
        if number % 7 == 0:
            partition.append(encode([Record(0, 1, None, value, (Header(b"h", b"x"),))]))
        elif number % 11 == 0:
            partition.append(encode([Record(0, 1, None, value)], BatchStamp(codec=Codec.LZ4)))
        elif number % 13 == 0:
            partition.add_marker()
        else:
            partition.add(value, key=b"k")
    expected = content(partition)
    for step in (1000, 10_000, 131_072):
        assert expected == read_all(PartitionViews(partition).whole(VALUES), step=step)


def test_a_random_read_fetches_little_around_its_place() -> None:
    """A read at a random position renders at most 64 KiB before the position, and its fetch is limited."""
    partition = lines(100_000, batch=20)
    view = PartitionViews(partition).whole(VALUES)
    view.measure()
    expected = content(partition)
    generator = random.Random(1)
    for _ in range(50):
        position = generator.randrange(view.size)
        partition.bytes_read = 0
        assert expected[position : position + 100] == ViewReader(view).read(position, 100)
        assert partition.bytes_read <= 2 * rendering_module.FIRST_FETCH_BYTES


def test_readahead_that_overtakes_is_served_without_starting_over() -> None:
    """Two read requests in the wrong order, as the kernel's readahead sends them, fetch nothing twice."""
    partition = lines(20_000, batch=160)
    view = PartitionViews(partition).whole(VALUES)
    view.measure()
    partition.bytes_read = 0
    reader, expected, step = ViewReader(view), content(partition), 128 * 1024
    assert expected[:step] == reader.read(0, step)
    for position in range(step, len(expected), 2 * step):
        second = reader.read(position + step, step)
        first = reader.read(position, step)
        assert expected[position : position + 2 * step] == b"".join((first, second))
    assert partition.bytes_read < 1.2 * len(partition.memory_segments[0].data)


def test_a_batch_larger_than_the_window_is_rendered_in_parts() -> None:
    """A batch larger than a window is rendered in parts."""
    partition = lines(40_000, batch=40_000)
    view = PartitionViews(partition).whole(VALUES)
    expected, reader = content(partition), ViewReader(view)
    position = 0
    while part := reader.read(position, 100_000):
        assert expected[position : position + 100_000] == part
        position += len(part)
        assert len(reader._window.data) <= 2.5 * rendering_module.TEXT_WINDOW_BYTES
    assert len(expected) == position
    assert expected[2_345_678:2_345_999] == ViewReader(view).read(2_345_678, 321)


def test_a_single_record_larger_than_the_window_is_read_whole() -> None:
    """A record larger than a window is read completely."""
    partition = MemoryPartition()
    partition.add(b"before")
    partition.add(b"x" * 3_000_000)
    partition.add(b"after")
    view = PartitionViews(partition).whole(VALUES)
    assert content(partition) == read_all(view, step=1_000_000)
    assert b"xx\nafter\n" == ViewReader(view).read(view.size - 9, 100)


def test_a_hundred_thousand_one_record_batches_are_one_file() -> None:
    """A view of 100,000 batches of one record, as appends of a shell make them, is exact and has a small index."""
    partition = MemoryPartition()
    encoded = encode_lines(LINE, timestamp=1)[0]
    for _ in range(100_000):
        partition.append(bytearray(encoded))
    view = PartitionViews(partition).whole(VALUES)
    assert view.measure()
    assert 100_000 * len(LINE) == view.size
    assert LINE == ViewReader(view).read(77_777 * len(LINE), len(LINE))
    assert len(view._frame.measure._index) <= 1 + view.size // 65536


def test_large_keys_do_not_hide_small_values_far_from_an_index_entry() -> None:
    """Batches with large keys and small values have enough index entries to limit a read."""
    partition = MemoryPartition()
    for _ in range(64):
        partition.add(b"v", key=b"k" * 100_000)
    view = PartitionViews(partition).whole(VALUES)
    view.measure()
    partition.bytes_read = 0
    assert b"v\n" == ViewReader(view).read(126, 2)
    assert partition.bytes_read < 2_000_000


def test_memory_stays_flat_while_a_view_is_read() -> None:
    """Reading a view of many windows needs memory for only a few windows."""
    partition = lines(200_000, batch=1000)
    view = PartitionViews(partition).whole(JSON)
    reader, position = ViewReader(view), 0
    tracemalloc.start()
    try:
        while part := reader.read(position, 131_072):
            position += len(part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert position > 35_000_000
    assert peak < 12 * rendering_module.TEXT_WINDOW_BYTES


def test_readers_of_one_view_keep_their_own_places(partition: MemoryPartition) -> None:
    """Two readers of one view have separate positions."""
    view = PartitionViews(partition).whole(KV)
    expected = content(partition, KV)
    first, second = ViewReader(view), ViewReader(view)
    for position in range(0, len(expected) - 200, 50):
        assert expected[position : position + 50] == first.read(position, 50)
        assert expected[-position - 50 : -position or None] == second.read(len(expected) - position - 50, 50)


def test_an_offset_below_a_new_log_start_raises_segment_deleted(
    partition: MemoryPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the log start moves after the lookup and before the read, the read raises SegmentDeletedError."""
    reader = ViewReader(PartitionViews(partition).whole(VALUES))

    def deny(offset: int, **_: object) -> None:
        raise OffsetOutOfRangeError(offset, 50, 120)

    monkeypatch.setattr(partition, "read", deny)
    with pytest.raises(SegmentDeletedError):
        reader.read(0, 10)
