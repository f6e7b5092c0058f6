"""Several partitions that are merged into one stream, compared with a merge of plain lists."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.hostile import record, sealed
from tests.doubles.memory_partition import MemoryPartition
from topicfs.fusefs.allowance import Allowance
from topicfs.fusefs.forms import FORMS, JSON, VALUES, Form
from topicfs.fusefs.views import merged_stream
from topicfs.fusefs.views.merged_stream import MergedRange, MergedReader
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.errors import CorruptionError, OversizeError, SegmentDeletedError
from topicfs.storage.model import Isolation, Offset, Record, Timestamp

Times = list[list[list[int]]]
"""The batches of each partition, and the timestamps of each batch."""


def partitions_of(times: Times) -> list[MemoryPartition]:
    """Return partitions whose values contain partition and offset; every third value also contains a newline."""
    partitions = []
    for number, batches in enumerate(times):
        partition = MemoryPartition(number=number)
        for timestamps in batches:
            first = partition.offsets().log_end_offset
            partition.append(
                encode(
                    [
                        record_at(number, Offset(first + delta), Offset(delta), timestamp)
                        for delta, timestamp in enumerate(timestamps)
                    ]
                )
            )
        partitions.append(partition)
    return partitions


def record_at(number: int, offset: Offset, delta: Offset, timestamp: int) -> Record:
    value = b"%d/%d" % (number, offset) + (b"\nand more" if offset % 3 == 0 else b"")
    return Record(delta, Timestamp(timestamp), None if offset % 2 else b"k", value)


def shares_of(partitions: Sequence[MemoryPartition]) -> list[MergedRange]:
    return [
        MergedRange(
            partition,
            partition.offsets().log_start_offset,
            partition.offsets().visible_end(Isolation.READ_COMMITTED),
        )
        for partition in partitions
    ]


def reader_of(partitions: Sequence[MemoryPartition], form: Form = VALUES) -> MergedReader:
    return MergedReader(shares_of(partitions), form, Isolation.READ_COMMITTED)


def read(reader: MergedReader, position: int, size: int) -> bytes:
    while not reader.reach(position, size):
        pass
    return reader.read(position, size)


def read_all(reader: MergedReader, size: int = 7) -> bytes:
    content = b""
    while data := read(reader, len(content), size):
        assert len(data) <= size
        content += data
    return content


def order_of(times: Times) -> list[tuple[int, int]]:
    """Return (partition, offset) of all records in merged order.

    The partition with the smallest next timestamp comes first. If timestamps are equal, the partition with the lower
    number comes first.
    """
    queues = [[timestamp for batch in batches for timestamp in batch] for batches in times]
    heap = [(queue[0], number, 0) for number, queue in enumerate(queues) if queue]
    heapq.heapify(heap)
    order = []
    while heap:
        _, number, offset = heapq.heappop(heap)
        order.append((number, offset))
        if offset + 1 < len(queues[number]):
            heapq.heappush(heap, (queues[number][offset + 1], number, offset + 1))
    return order


def expected_of(times: Times) -> bytes:
    return b"".join(
        b"%d/%d" % place + (b"\nand more\n" if place[1] % 3 == 0 else b"\n") for place in order_of(times)
    )


TIMES = st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=5), max_size=5)


@given(TIMES, st.integers(1, 40))
def test_the_smallest_timestamp_comes_first_and_partitions_stay_in_order(times: Times, size: int):
    """The smallest next timestamp comes first, each partition's order is kept, and read sizes do not matter."""
    assert expected_of(times) == read_all(reader_of(partitions_of(times)), size)


@pytest.mark.parametrize("kept", [1, 9])
def test_a_stream_that_continues_moves_no_position(kept: int, monkeypatch: pytest.MonkeyPatch):
    """After a stream is extended, its new records follow the earlier ones, even if their timestamps are older.

    Positions do not change. A stream that was extended more than KEPT_ROUNDS times cannot be read from its start.
    """
    monkeypatch.setattr(merged_stream, "KEPT_ROUNDS", kept)
    monkeypatch.setattr(merged_stream, "REREAD_BYTES", 4)
    partitions = partitions_of([[[5], [3]], [[4], [1]]])
    first = [share._replace(end_offset=Offset(1)) for share in shares_of(partitions)]
    reader = MergedReader(first, VALUES, Isolation.READ_COMMITTED)
    begin = read_all(reader)
    for _ in range(2):
        reader.extend(shares_of(partitions))

    assert (b"1/0\nand more\n0/0\nand more\n", b"1/1\n0/1\n") == (begin, read(reader, len(begin), 99))
    if kept > 1:
        assert begin + b"1/1\n0/1\n" == read_all(reader)
    else:
        with pytest.raises(SegmentDeletedError, match="no longer be read again"):
            reader.reach(0, 1)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix)
def test_lines_are_those_of_the_partitions_files(form: Form):
    """Each line of the stream is the same as in the file of its partition."""
    partitions = partitions_of([[[1, 4, 2], [9]], [[3], [3]]])

    merged = read_all(reader_of(partitions, form))

    alone = b"".join(read_all(reader_of([partition], form)) for partition in partitions)
    assert sorted(alone.splitlines()) == sorted(merged.splitlines())


@given(TIMES, st.data())
def test_memory_that_is_short_changes_nothing(times: Times, data: st.DataObject):
    """With any memory limits the stream is the same, because data of idle partitions is dropped and read again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_stream, "MERGE_MEMORY_BYTES", data.draw(st.integers(0, 2000)))
        patch.setattr(merged_stream, "SMALLEST_MERGE_FETCH_BYTES", 1)
        patch.setattr(merged_stream, "LINES_AT_ONCE", data.draw(st.integers(1, 3)))
        patch.setattr(merged_stream, "MERGE_STEP_BYTES", data.draw(st.integers(1, 100)))
        patch.setattr(merged_stream, "PLACED_AT_ONCE", 1)
        patch.setattr(merged_stream, "REREAD_BYTES", data.draw(st.integers(0, 10)))
        assert expected_of(times) == read_all(reader_of(partitions_of(times)))


@given(TIMES, st.lists(st.integers(0, 200), max_size=5))
def test_any_place_can_be_read(times: Times, positions: list[int]):
    """A stream can be read at any position.

    For a later position, the stream renders up to it. For an earlier position, the stream renders from its start.
    """
    reader, expected = reader_of(partitions_of(times)), expected_of(times)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_stream, "REREAD_BYTES", 5)
        for position in positions:
            assert expected[position : position + 11] == read(reader, position, 11)


def test_data_of_the_present_round_is_not_dropped(monkeypatch: pytest.MonkeyPatch):
    """However low MERGE_MEMORY_BYTES is, the data of the lines to be merged next is not dropped before its use."""
    monkeypatch.setattr(merged_stream, "MERGE_MEMORY_BYTES", 1)

    assert expected_of([[[1, 2]], [[0, 1]]]) == read_all(reader_of(partitions_of([[[1, 2]], [[0, 1]]])))


def test_no_line_overtakes_one_that_is_not_rendered_yet(monkeypatch: pytest.MonkeyPatch):
    """A line waits if another partition may have an older line that is not rendered yet."""
    monkeypatch.setattr(merged_stream, "LINES_AT_ONCE", 2)
    times = [[[1, 2, 3, 4, 5]], [[2, 9, 9, 9]], [[1, 8, 8]]]

    assert expected_of(times) == read_all(reader_of(partitions_of(times)))


def test_dropped_batches_are_read_again(monkeypatch: pytest.MonkeyPatch):
    """With a low MERGE_MEMORY_BYTES, dropped batches are read again."""
    times: Times = [[[time] for time in range(20)] for _ in range(5)]
    reads = []
    for held_bytes in (10_000_000, 1000):
        monkeypatch.setattr(merged_stream, "MERGE_MEMORY_BYTES", held_bytes)
        monkeypatch.setattr(merged_stream, "SMALLEST_MERGE_FETCH_BYTES", 10_000)
        monkeypatch.setattr(merged_stream, "LINES_AT_ONCE", 2)
        partitions = partitions_of(times)
        read_all(reader_of(partitions))
        reads.append(sum(partition.reads for partition in partitions))

    assert 5 == reads[0]
    assert reads[1] > 5


def test_the_memory_of_a_merged_stream_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """The memory for data stays within MERGE_MEMORY_BYTES, even with many partitions of many batches."""
    monkeypatch.setattr(merged_stream, "MERGE_MEMORY_BYTES", 20_000)
    partitions = partitions_of([[[time] for time in range(50)] for _ in range(30)])
    reader = reader_of(partitions)
    held = []
    position = 0

    while data := read(reader, position, 100):
        position += len(data)
        held.append(reader._batches.size_bytes + reader._lines.size_bytes)

    assert max(held) <= 20_000
    assert position == len(expected_of([[[time] for time in range(50)] for _ in range(30)]))


def test_a_stream_ends_where_its_partitions_ended_when_it_was_opened():
    """A stream ends where its partitions ended when it was opened."""
    partitions = partitions_of([[[1]], [[2]]])
    reader = reader_of(partitions)
    partitions[0].add(b"later", time=0)

    assert read_all(reader) == expected_of([[[1]], [[2]]])


def test_shares_may_begin_and_end_anywhere():
    """The part of a partition in the stream may begin and end at any offset, as in ranges of time."""
    partition = partitions_of([[[1, 2], [3, 4]]])[0]

    reader = MergedReader([MergedRange(partition, Offset(1), Offset(3))], JSON, Isolation.READ_COMMITTED)

    assert [b"1", b"2"] == [line.split(b'"offset":')[1][:1] for line in read_all(reader).splitlines()]


def test_damage_costs_its_own_records_and_is_reported_once():
    """A damaged batch fails one read. Records that are earlier in time are read before, and later records after it."""
    partitions = partitions_of([[[1], [3], [5]], [[2], [4]]])
    partitions[0].damage(1)
    reader = reader_of(partitions)

    before = read(reader, 0, 1000)
    with pytest.raises(CorruptionError):
        read(reader, len(before), 1000)

    assert b"0/0\nand more\n" == before
    assert b"1/0\nand more\n1/1\n0/2\n" == read(reader, len(before), 1000)


def test_records_that_were_deleted_are_reported_each_time():
    """If records of the stream were deleted, every read fails: otherwise a reader would miss lines unnoticed."""
    partition = MemoryPartition()
    for time in range(4):
        partition.add(b"%d" % time, time=time)
        partition.roll()
    reader = MergedReader(shares_of([partition]), VALUES, Isolation.READ_COMMITTED)
    partition.delete_oldest_segments(2)

    for _again in range(2):
        with pytest.raises(SegmentDeletedError):
            read(reader, 0, 10)


def test_lines_in_more_batches_than_a_request_decodes_take_several_calls(monkeypatch: pytest.MonkeyPatch):
    """If the next lines are in more batches than a request may decode, several calls merge them."""
    monkeypatch.setattr(merged_stream, "MERGE_MEMORY_BYTES", 40_000)
    partitions = []
    for number in range(8):
        partition = MemoryPartition(number=number)
        records = [
            Record(Offset(0), Timestamp(1), None, b"first %d" % number),
            Record(Offset(1), Timestamp(9), None, b"second %d" % number),
            Record(Offset(2), Timestamp(9), b"k" * 30_000, b"third %d" % number),
        ]
        partition.append(encode(records, BatchStamp(codec=Codec.ZSTD)))
        partitions.append(partition)
    reader, content = reader_of(partitions), b""
    for _call in range(100):
        with Allowance(90_000, inline=False):
            reached = reader.reach(len(content), 1000)
        if reached:
            content += reader.read(len(content), 1000)
    first = [b"first %d" % number for number in range(8)]
    rest = [b"%s %d" % (name, number) for number in range(8) for name in (b"second", b"third")]
    assert first + rest == content.splitlines()


def test_lines_at_hand_are_kept_when_their_batches_are_let_go(monkeypatch: pytest.MonkeyPatch):
    """Rendered lines are kept when their batches are dropped, so that batches are not decoded again for each line."""
    times: Times = [[list(range(number, 200, 7))] for number in range(7)]
    partitions = partitions_of(times)
    monkeypatch.setattr(merged_stream, "MERGE_MEMORY_BYTES", 100 * len(partitions) * 30)
    assert expected_of(times) == read_all(reader_of(partitions), 100)
    assert sum(partition.reads for partition in partitions) <= 3 * len(partitions)


def test_too_many_records_of_one_offset_count_as_damage():
    """A batch with too many records at one offset counts as damaged, because no producer makes such a batch."""
    partition = MemoryPartition()
    partition.add(b"before")
    same = b"".join(record(b"same") for _ in range(merged_stream.LINES_AT_ONCE + 1))
    both = same + record(b"next", delta=1)
    partition.append(sealed(both, count=merged_stream.LINES_AT_ONCE + 2, last_delta=1))
    partition.add(b"behind")
    partition.append(sealed(record(b"few") * 3, count=3, last_delta=0))
    for form, wide in ((VALUES, b"next\nbehind\nfew\nfew\nfew\n"), (JSON, None)):
        reader = reader_of([partition], form)
        before = read(reader, 0, 10**6)
        with pytest.raises(OversizeError, match=r"0\.log: position \d+: 1025 records of offset 1"):
            read(reader, len(before), 10**6)
        rest = read(reader, len(before), 10**6)
        assert (1, 5) == (before.count(b"\n"), rest.count(b"\n"))
        assert wide is None or rest == wide
