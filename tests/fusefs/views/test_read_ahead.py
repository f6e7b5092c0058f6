"""Threads decompress values ahead of a reader, who gets the same bytes and errors as without threads."""

from __future__ import annotations

import threading

import pytest

from tests.doubles.memory_partition import MemoryPartition
from tests.fusefs.views.expected import content, joined, read_all, reads
from topicfs.fusefs import allowance as allowances
from topicfs.fusefs.allowance import Allowance
from topicfs.fusefs.forms import VALUES
from topicfs.fusefs.views import read_ahead
from topicfs.fusefs.views.read_ahead import MAX_CHUNKS, STOPPED_READER_SECONDS, Pool, PrefetchChunk, ReadGoal
from topicfs.fusefs.views.reader import ViewReader
from topicfs.fusefs.views.view import PartitionViews
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Isolation, Offset, Record, Timestamp

RECORDS = 40
"""The number of records in a batch, of about 500 bytes each."""
BATCHES = 150
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def value(number: int) -> bytes:
    """Return a value that can be compressed to about half its size."""
    return (b"%d " % (number * 7919)) * (50 + number % 30)


def compressed(number: int, codec: Codec) -> bytearray:
    """Return the batch with number `number`, compressed with `codec`."""
    records = [Record(Offset(n), Timestamp(1), None, value(RECORDS * number + n)) for n in range(RECORDS)]
    return encode(records, BatchStamp(codec=codec))


def log_of(*codecs: Codec) -> MemoryPartition:
    """Return a log of more than 2 MiB of text, whose batches use `codecs` in turn."""
    partition = MemoryPartition()
    for number in range(BATCHES):
        partition.append(compressed(number, codecs[number % len(codecs)]))
        if number % 40 == 39:
            partition.roll()
    return partition


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """A pool of two threads, whatever number of processors the machine has."""
    made = Pool(2)
    monkeypatch.setattr(read_ahead, "POOL", made)
    return made


@pytest.mark.parametrize("step", [4096, 100_000, 2**17, 2**20])
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_log_that_is_read_through_shows_every_record_once(codec: Codec, step: int) -> None:
    """With any read size, a log is read with every record once; all reads except the last are full."""
    partition = log_of(codec)
    parts = reads(PartitionViews(partition).whole(VALUES), step)

    assert content(partition) == joined(parts)
    assert all(isinstance(part, bytes) and step == len(part) for part in parts[:-1])


def test_codecs_may_change_from_batch_to_batch() -> None:
    """Batches with different codecs and uncompressed batches can follow each other."""
    partition = log_of(*Codec)

    assert content(partition) == read_all(PartitionViews(partition).whole(VALUES), step=2**17)


@pytest.mark.parametrize("damaged", [60, 61, 100, BATCHES - 1])
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_damaged_batch_causes_the_same_error_with_threads(
    monkeypatch: pytest.MonkeyPatch, codec: Codec, damaged: int
) -> None:
    """A damaged batch causes the same reads and the same error with and without threads."""
    partition = log_of(codec)
    partition.damage(RECORDS * damaged)
    found = []
    for processors in (1, 2):
        monkeypatch.setattr(read_ahead, "POOL", Pool(processors))
        parts = reads(PartitionViews(partition).whole(VALUES), 2**17)
        found.append([part if isinstance(part, bytes) else str(part) for part in parts])

    assert found[0] == found[1]
    assert 1 == sum(isinstance(part, str) for part in found[1])


def test_batches_too_large_for_threads_are_shown() -> None:
    """Batches that are too large for the threads to decompress are shown."""
    partition = log_of(Codec.ZSTD)
    large = Record(Offset(0), Timestamp(1), None, bytes(read_ahead.LARGEST_CONTENT_BYTES + 1))
    partition.append(encode([large], BatchStamp(codec=Codec.ZSTD)))
    for number in range(BATCHES):
        partition.append(compressed(number, Codec.ZSTD))

    assert content(partition) == read_all(PartitionViews(partition).whole(VALUES), step=2**17)


def test_a_reader_that_jumps_gets_the_bytes_at_its_position() -> None:
    """After a jump a reader gets the right bytes, and data decompressed for its old position is dropped."""
    partition = log_of(Codec.LZ4)
    expected = content(partition)
    reader = ViewReader(PartitionViews(partition).whole(VALUES))
    for start in (0, len(expected) // 2, 5, len(expected) - 2**20):
        for position in range(start, start + 2**20, 2**17):
            assert expected[position : position + 2**17] == reader.read(position, 2**17)


def test_records_appended_meanwhile_are_shown_after_those_inflated() -> None:
    """Records that are appended while a reader reads are returned once, after the earlier records."""
    partition, shown = MemoryPartition(), b""
    reader = ViewReader(PartitionViews(partition).whole(VALUES))
    for number in range(BATCHES):
        partition.append(compressed(number, Codec.SNAPPY))
        if number % 10 == 9:
            while part := reader.read(len(shown), 2**17):
                shown += part

    assert content(partition) == shown


def test_bytes_that_threads_inflate_count_for_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that threads decompress for a reader count against its allowance."""
    monkeypatch.setattr(allowances, "INLINE_SECONDS", 1000)  # Only bytes count in this test, not time.
    partition = log_of(Codec.GZIP)
    reader = ViewReader(PartitionViews(partition).whole(VALUES))
    for position in range(0, 2**20, 2**17):
        reader.read(position, 2**17)
    with Allowance(2**24, inline=True) as allowance:
        reader.read(2**20, 2**19)

    assert 2**24 - allowance.remaining >= 2**18


def chunk(codec: Codec = Codec.LZ4) -> PrefetchChunk:
    """Return the first batch of a log as a chunk that can be decompressed ahead."""
    partition = MemoryPartition()
    partition.append(compressed(0, codec))
    fetched = partition.read(Offset(0), max_bytes=1, isolation=Isolation.READ_COMMITTED)
    return PrefetchChunk(fetched, Offset(0), Offset(RECORDS), text_bytes=2**15)


FIRST = b"".join(value(number) + b"\n" for number in range(RECORDS))


def test_a_thread_or_the_reader_inflates_a_chunk() -> None:
    """A thread or the reader decompresses a chunk, whichever is first; the result is the same."""
    by_thread, by_reader = chunk(), chunk()
    by_thread.inflate()
    for begun in (by_thread, by_reader):
        found = begun.result()
        assert found is not None
        assert b"before " + FIRST == found.behind(b"before ")


def test_text_longer_than_the_reserved_space_copies_the_chunk() -> None:
    """If the text that `behind` puts in front of a chunk exceeds the reserved space, the chunk is copied."""
    found = chunk().result()

    assert found is not None
    assert bytes(2**18) + FIRST == found.behind(bytes(2**18))


def test_a_chunk_that_was_given_up_has_no_result() -> None:
    """After `give_up`, the result is None, whether the chunk has been decompressed or not."""
    before, after = chunk(), chunk()
    before.give_up()
    after.inflate()
    after.give_up()

    assert [None, None] == [before.result(), after.result()]


def test_chunks_are_bounded_and_the_oldest_makes_room_once_its_reader_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool accepts MAX_CHUNKS unused chunks; a new one replaces the oldest only after STOPPED_READER_SECONDS."""
    now = [0.0]
    monkeypatch.setattr(read_ahead.time, "monotonic", lambda: now[0])
    pool = Pool(1)  # A pool without threads: a thread would keep the chunk that it is working on.
    for _ in range(2 * MAX_CHUNKS):
        assert pool.begin(chunk())
    kept = [chunk() for _ in range(MAX_CHUNKS)]
    assert all(pool.begin(one) for one in kept)
    assert not pool.begin(chunk())
    now[0] += STOPPED_READER_SECONDS

    assert pool.begin(chunk())
    assert [True] + [False] * (MAX_CHUNKS - 1) == [one.result() is None for one in kept]


def test_one_processor_has_no_threads() -> None:
    """On a single processor there are no threads, because the reader would only wait for them."""
    assert [0, 2, 4] == [Pool(processors).threads for processors in (1, 2, 64)]


def test_thousands_of_readers_share_the_threads(pool: Pool) -> None:
    """All readers share the threads of one pool."""
    before = threading.active_count()
    partition = log_of(Codec.ZSTD)
    view = PartitionViews(partition).whole(VALUES)
    readers = [ViewReader(view) for _ in range(60)]
    expected = content(partition)
    for position in range(0, 2**20, 2**18):
        for reader in readers:
            assert expected[position : position + 2**18] == reader.read(position, 2**18)

    assert threading.active_count() - before <= pool.threads


@pytest.mark.parametrize("step", [2**17, 2**20])
def test_chunks_end_a_little_after_the_end_of_a_read(step: int) -> None:
    """Threads decompress only a little beyond the end of a read, so that little data must be copied."""
    aim = ReadGoal(step, batch_share=0.5, batch_bytes=8192)
    for spilled in (0, 1000, step - 1000, 5 * step + 70_000):
        end = spilled + aim.text_bytes(spilled)
        assert 0 < end % step < 2**16
