"""How many bytes one request may decode: in the event loop's thread, in another thread, and in total."""

from __future__ import annotations

import threading

import pytest

from tests.doubles.hostile import empty_headers, record, sealed
from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, found_in, read_all
from topicfs.fusefs import allowance
from topicfs.fusefs.allowance import (
    Allowance,
    RequestTooLargeError,
    current,
    leave_event_loop,
    take_turn,
)
from topicfs.fusefs.forms import BATCH, FORMS, JSON, VALUES
from topicfs.fusefs.views import decoded_fetch, measure
from topicfs.fusefs.views.decoded_fetch import Damage, read_decoded
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.records import content_of, find_record, last_records_start, latest_offset
from topicfs.fusefs.views.view import DIRECT_OFFSETS, PartitionViews
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.codec.compression.codecs import deflate
from topicfs.storage.codec.headers import Codec
from topicfs.storage.errors import OversizeError
from topicfs.storage.model import Isolation, Offset
from topicfs.storage.remote import ThreadNeededError

pytestmark = pytest.mark.slow

UNCOMMITTED = Isolation.READ_UNCOMMITTED
SIZES = (30_000, 100_000, 5_000, 60_000)


def compressed(*sizes: int) -> MemoryPartition:
    """Return a partition with one compressed batch of one record for each of `sizes`."""
    partition = MemoryPartition()
    for number, size in enumerate(sizes):
        partition.append(sealed(record(b"%d" % number * size), codec=Codec.ZSTD))
    return partition


def test_an_allowance_holds_for_its_block_alone():
    """An allowance applies inside its `with` block; after the block, the outer allowance applies, if there is one."""
    assert current() is None
    with Allowance(1, inline=True) as outer:
        with Allowance(2, inline=False) as inner:
            assert current() is inner
        assert current() is outer
    assert current() is None


def test_in_the_event_loop_a_batch_too_large_is_left_to_a_thread():
    """A batch above the event loop's allowance raises ThreadNeededError; with a larger allowance it can be read."""
    partition = compressed(30_000)
    with Allowance(29_000, inline=True), pytest.raises(ThreadNeededError):
        find_record(partition, Offset(0))
    for bound in (Allowance(31_000, inline=True), Allowance(1, inline=False)):
        with bound:
            assert b"0" * 30_000 == found_in(partition, 0).record.value


def test_in_the_event_loop_plain_batches_count_by_their_bytes():
    """In the event loop, a plain batch counts by its size in the log, because it is not decoded."""
    partition = MemoryPartition()
    partition.add(b"x" * 1000)
    with Allowance(1000, inline=True), pytest.raises(ThreadNeededError):
        find_record(partition, Offset(0))


def test_in_the_event_loop_a_fetch_ends_before_a_batch_too_large():
    """A fetch in the event loop returns the batches that fit; the next fetch begins with the batch that did not fit."""
    partition = compressed(*SIZES)
    with Allowance(60_000, inline=True):
        fetched = read_decoded(partition, Offset(0), max_bytes=10**6, isolation=UNCOMMITTED)
        assert ([1], 1) == ([len(piece) for piece in fetched.pieces], fetched.next_offset)
        with pytest.raises(ThreadNeededError):
            read_decoded(partition, fetched.next_offset, max_bytes=10**6, isolation=UNCOMMITTED)


def test_a_fetch_ends_with_the_batch_that_fills_it(monkeypatch):
    """A fetch ends with the batch that reaches DECODED_BYTES, and the next fetch continues with the next batch."""
    monkeypatch.setattr(decoded_fetch, "DECODED_BYTES", 90_000)
    partition = compressed(*SIZES)
    offset, found = Offset(0), []
    while offset < 4:
        fetched = read_decoded(partition, offset, max_bytes=10**6, isolation=UNCOMMITTED)
        assert fetched.size_bytes == len(fetched.data)
        found.append(len(fetched.pieces))
        offset = fetched.next_offset
    assert [2, 2] == found


def test_a_fetch_with_damage_is_as_short(monkeypatch):
    """A fetch ends at a damaged compressed batch, as at a large one. Damaged plain batches do not end a fetch."""
    monkeypatch.setattr(decoded_fetch, "DECODED_BYTES", 90_000)
    partition = compressed(*SIZES)
    partition.damage(0)
    fetched = read_decoded(partition, Offset(0), max_bytes=10**6, isolation=UNCOMMITTED)
    assert ([True], 1) == ([isinstance(piece, Damage) for piece in fetched.pieces], fetched.next_offset)
    plain = MemoryPartition()
    for size in SIZES:
        plain.add(b"x" * size)
    plain.damage(0)
    fetched = read_decoded(plain, Offset(0), max_bytes=10**6, isolation=UNCOMMITTED)
    assert [True, False] == [isinstance(piece, Damage) for piece in fetched.pieces]
    assert 4 == fetched.next_offset


def test_a_thread_decodes_one_batch_beyond_its_allowance(monkeypatch):
    """A thread still decodes the batch that exceeds its allowance, whatever its size, and refuses the next batch."""
    monkeypatch.setattr(decoded_fetch, "DECODED_BYTES", 1)
    partition = compressed(*SIZES)
    with Allowance(100_000, inline=False):
        for offset in (0, 1):
            assert find_record(partition, Offset(offset)) is not None
        with pytest.raises(RequestTooLargeError):
            find_record(partition, Offset(2))


def test_one_request_decodes_a_batch_once():
    """If a request looks up records of one batch several times, the batch is decoded and counted once."""
    partition = compressed(30_000)
    with Allowance(30_500, inline=True):
        for _ in range(3):
            assert find_record(partition, Offset(0)) is not None
            assert 0 == latest_offset(partition, isolation=UNCOMMITTED)
        partition.add(b"more")
        assert find_record(partition, Offset(1)) is not None
        with pytest.raises(ThreadNeededError):
            find_record(partition, Offset(0))


def test_a_read_that_exceeds_its_allowance_is_short_or_fails(monkeypatch):
    """If a read exceeds its allowance, it returns fewer bytes.

    A read for the page cache must not be short. Such a read fails if it exceeds its allowance.
    """
    monkeypatch.setattr(decoded_fetch, "DECODED_BYTES", 1)
    partition = MemoryPartition()
    for number in range(6):
        value = record(b"%d" % number, headers=empty_headers(10_000))
        partition.append(sealed(value, codec=Codec.ZSTD))
    reader, seen = ViewReader(PartitionViews(partition).whole(VALUES)), []
    while len(seen) < 10:
        with Allowance(30_000, inline=False):
            part = reader.read(sum(map(len, seen)), 1000, short_at_damage=True)
        if not part:
            break
        seen.append(part)
    assert [b"0\n1\n", b"2\n3\n", b"4\n5\n"] == seen

    with Allowance(30_000, inline=False), pytest.raises(RequestTooLargeError):
        ViewReader(PartitionViews(partition).whole(VALUES)).read(0, 1000)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_read_begun_again_in_a_thread_leaves_nothing_out(codec):
    """A read that begins in the event loop and is repeated in a thread returns each byte exactly once."""
    partition, lines = MemoryPartition(), [b"a" * 65_450, b"b" * 65_450, b"c" * 900_000]
    for line in lines:
        partition.append(sealed(record(line), codec=Codec.ZSTD if len(line) > 70_000 else codec))
    reader, found = ViewReader(PartitionViews(partition).whole(VALUES)), b""
    for _ in range(12):
        try:
            with Allowance(800_000, inline=True):
                found += bytes(reader.read(len(found), 2**17))
        except ThreadNeededError:
            with Allowance(2**30, inline=False):
                found += bytes(reader.read(len(found), 2**17))
    assert lines == found.split(b"\n")[:-1]


def test_asking_whether_a_view_is_measured_starts_no_long_measurement():
    """If a view takes long to measure, `measured` is False until `measure` has measured it."""
    partition = compressed(measure.MEASURE_INLINE_BYTES + 1)
    view = PartitionViews(partition).whole(VALUES)
    assert (0, False) == (view.size, view.measured)
    assert view.measure()
    assert (view.size, view.measured) == (measure.MEASURE_INLINE_BYTES + 2, True)


def test_measure_counts_decompressed_bytes():
    """`measure` with `max_bytes` counts decompressed bytes, so it stops after a batch that decompresses to a MiB."""
    partition = compressed(*[2**20] * 8)
    view = PartitionViews(partition).whole(VALUES)
    assert not view.measure(max_bytes=2**20)
    assert view.measure()


def test_positions_are_stored_by_decompressed_size():
    """A position is stored every few decompressed MiB, so that a jump to any byte stays within an allowance."""
    partition = MemoryPartition()
    for number in range(40):
        value = record(b"%d" % number, headers=empty_headers(250_000))
        partition.append(sealed(value, codec=Codec.ZSTD))
    view = PartitionViews(partition).whole(VALUES)
    view.measure()
    expected = content(partition)
    for position in range(0, len(expected), 3):
        with Allowance(17 * 2**20, inline=False):
            assert expected[position : position + 1] == ViewReader(view).read(position, 1)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.suffix)
def test_a_batch_above_the_limit_counts_as_damaged(form):
    """A batch above MAX_CONTENT_BYTES has no positions in a view.

    One read fails at such a batch. The batches before and after the large batch can be read.
    """
    partition, likewise = MemoryPartition(), MemoryPartition()
    for each, size in ((partition, MAX_CONTENT_BYTES + 1), (likewise, 1)):
        each.add(b"before")
        each.append(sealed(record(b"x" * size), codec=Codec.ZSTD))
        each.add(b"behind")
    view = PartitionViews(partition).whole(form)
    assert view.measure()
    ends = content(likewise, form, end=1), content(likewise, form, start=2)
    assert view.size == sum(map(len, ends))
    handle = ViewReader(view)
    assert ends[0] == handle.read(0, 10**6, short_at_damage=True)
    with pytest.raises(OversizeError, match=r"0\.log: position \d+: zstd: more than 67108864 bytes inflated"):
        handle.read(len(ends[0]), 10**6, short_at_damage=True)
    assert ends[1] == handle.read(len(ends[0]), 10**6, short_at_damage=True)
    with pytest.raises(OversizeError):
        find_record(partition, Offset(1))


def test_a_batch_that_is_too_large_is_copied_as_it_is():
    """`log.batch` copies a batch without decompressing it, so MAX_CONTENT_BYTES does not apply."""
    partition = MemoryPartition()
    partition.append(sealed(record(b"x" * (MAX_CONTENT_BYTES + 1)), codec=Codec.ZSTD))
    assert bytes(partition.memory_segments[0].data) == read_all(PartitionViews(partition).whole(BATCH))


def test_a_line_too_long_is_shown_in_another_form():
    """A value whose JSON line is too long (six bytes for each control character) can still be read in `log`."""
    partition = MemoryPartition()
    size = MAX_CONTENT_BYTES // 6 + 1
    partition.append(sealed(record(bytes(size)) + record(b"x", delta=1), count=2, codec=Codec.ZSTD))
    views = PartitionViews(partition)
    assert bytes(size) + b"\nx\n" == read_all(views.whole(VALUES), step=2**24)
    with pytest.raises(OversizeError, match="the line of offset 0 in log.json would have"):
        ViewReader(views.whole(JSON)).read(0, 1)
    found = found_in(partition, 0)
    assert bytes(size) == content_of(found, VALUES, partition)
    with pytest.raises(OversizeError, match="the line of offset 0 in log.json would have"):
        content_of(found, JSON, partition)
    assert content_of(found_in(partition, 1), JSON, partition).endswith(b'"payload":"x"}\n')


def test_the_event_loop_waits_for_no_thread_that_reads_or_measures():
    """If the lock is held, `take_turn` raises ThreadNeededError in the event loop, and waits in other threads."""
    lock = threading.Lock()
    with lock, Allowance(1, inline=True), pytest.raises(ThreadNeededError):
        take_turn(lock)
    for bound in (Allowance(1, inline=True), Allowance(1, inline=False)):
        with bound:
            take_turn(lock)
        assert lock.locked()
        lock.release()
    lock.acquire()
    threading.Timer(0.05, lock.release).start()
    with Allowance(1, inline=False):
        take_turn(lock)
    assert lock.locked()


def test_damaged_batches_of_a_fetch_are_reported_one_by_one():
    """A fetch reports each damaged batch separately, whether its header or its records are damaged."""
    partition = MemoryPartition()
    for number in range(6):
        partition.append(sealed(record(b"%d" % number), codec=Codec.ZSTD if number % 2 else Codec.NONE))
    partition.append(sealed(record(b"6")[:-1] + b"\1"))
    partition.append(sealed(record(b"7")))
    partition.damage(1)
    partition.damage(4)
    found, offset = [], Offset(0)
    while offset < 8:
        fetched = read_decoded(partition, offset, max_bytes=10**6, isolation=UNCOMMITTED)
        found += [
            piece.offset if isinstance(piece, Damage) else piece.offsets.tolist() for piece in fetched.pieces
        ]
        offset = fetched.next_offset
    assert [[0], 1, [2], [3], 4, [5], 6, [7]] == found


def test_counting_back_leaves_the_event_loop_when_the_way_is_long():
    """The last records are found by a walk over batch headers.

    If the walk exceeds the event loop's allowance, it raises ThreadNeededError.
    """
    partition = MemoryPartition()
    for _ in range(40):
        partition.add(b"x" * 1000, b"y")
    with Allowance(10_000, inline=True):
        assert 77 == last_records_start(partition, 3, Offset(80), isolation=UNCOMMITTED)
        with pytest.raises(ThreadNeededError):
            last_records_start(partition, 60, Offset(80), isolation=UNCOMMITTED)
    with Allowance(1, inline=False):
        assert 20 == last_records_start(partition, 60, Offset(80), isolation=UNCOMMITTED)
    with Allowance(1, inline=False, ended=lambda: True), pytest.raises(InterruptedError):
        last_records_start(partition, 60, Offset(80), isolation=UNCOMMITTED)


def test_a_request_for_more_records_than_the_log_has_counts_nothing():
    """If more records are requested than the log has, the first record's offset is returned without a count."""
    partition = MemoryPartition()
    partition.add_marker()
    for _ in range(2000):
        partition.add(b"x" * 1000)
    assert 1 == last_records_start(partition, 10**8, Offset(2001), isolation=UNCOMMITTED)
    assert partition.reads <= 2


def test_only_measure_recomputes_a_view_from_a_better_measure():
    """`measured` does not recompute the view of a range if this takes long, but `measure` does.

    The view of a range is recomputed after the whole log has been measured.
    """
    partition = compressed(*[30_000] * 3)
    for _ in range(DIRECT_OFFSETS):
        partition.add(b"x")
    views = PartitionViews(partition)
    whole, part = views.whole(VALUES), views.range(VALUES, Offset(1), Offset(DIRECT_OFFSETS + 2))
    assert whole.measure()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topicfs.fusefs.views.view.MEASURE_INLINE_BYTES", 1000)
        patch.setattr(measure, "MEASURE_INLINE_BYTES", 1000)
        assert not part.measured
    assert part.measure()
    assert 2 * 30_001 + 2 * (DIRECT_OFFSETS - 1) == part.size


def test_leave_event_loop_raises_only_in_the_event_loop():
    """In the event loop, `leave_event_loop` raises ThreadNeededError; elsewhere it has no effect."""
    leave_event_loop()
    with Allowance(1, inline=False):
        leave_event_loop()
    with Allowance(10**9, inline=True), pytest.raises(ThreadNeededError):
        leave_event_loop()


def test_slow_decompression_is_left_to_a_thread(monkeypatch):
    """A batch of very many small blocks, or a series of batches that takes too long, is left to a thread."""
    slow = deflate(Codec.SNAPPY, b"")
    for byte in record(b"x" * 3000):
        slow += deflate(Codec.SNAPPY, bytes([byte]))[16:]
    partition = MemoryPartition()
    partition.append(sealed(b"", compressed=slow, codec=Codec.SNAPPY))
    with Allowance(10**6, inline=True), pytest.raises(ThreadNeededError):
        find_record(partition, Offset(0))
    with Allowance(1, inline=False):
        assert find_record(partition, Offset(0)) is not None

    partition = compressed(10, 10, 10)
    monkeypatch.setattr(allowance, "INLINE_SECONDS", -1)
    with Allowance(10**6, inline=True), pytest.raises(ThreadNeededError):
        find_record(partition, Offset(0))
    with Allowance(10**6, inline=False):
        fetched = read_decoded(partition, Offset(0), max_bytes=10**6, isolation=UNCOMMITTED)
        assert 3 == len(fetched.pieces)
