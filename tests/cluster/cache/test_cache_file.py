"""Tests that a cache file of adjacent batches returns appended bytes, and never other bytes, at any offset."""

from __future__ import annotations

import random
import struct

import pytest

from topicfs.cluster.cache.cache_file import CacheFile, DamagedError
from topicfs.storage.codec.batch import find_offset, read_header
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.model import AbortedTransaction, Isolation, Offset, ProducerId, Record, Timestamp

BATCHES, RECORDS = 60, 3


def batch(base, *, size=4000, **stamp):
    records = [
        Record(Offset(number), Timestamp(1_790_000_000_000), None, b"%d " % (base + number) + bytes(size))
        for number in range(RECORDS)
    ]
    made = bytearray(encode(records, BatchStamp(**stamp)))
    struct.pack_into(">q", made, 0, base)
    return bytes(made)


@pytest.fixture
def written(tmp_path):
    """A file of batches from offset 100 on, appended in three parts, and its batches."""
    batches = [batch(100 + RECORDS * number) for number in range(BATCHES)]
    cache_file = CacheFile(tmp_path / f"{100:020}.log", Offset(100))
    for first in range(0, BATCHES, BATCHES // 3):
        part = batches[first : first + BATCHES // 3]
        cache_file.append(memoryview(b"".join(part)), Offset(100 + RECORDS * (first + len(part))), ())
    yield cache_file, batches
    cache_file.close()


def read(cache_file, offset, max_bytes=1, isolation=Isolation.READ_COMMITTED):
    return cache_file.window(Offset(offset), max_bytes, isolation, 0).part(Offset(offset), max_bytes)


@pytest.mark.parametrize("again", [False, True], ids=["at once", "opened again"])
def test_every_offset_is_found(written, again):
    """A read at any offset returns one or more whole batches, starting with the batch that has that offset."""
    cache_file, batches = written
    if again:
        cache_file.close()
        cache_file = CacheFile.load(cache_file.path)
    assert (100, 100 + RECORDS * BATCHES) == (cache_file.base_offset, cache_file.next_offset)
    for offset in range(100, cache_file.next_offset):
        found = read(cache_file, offset)
        number = (offset - 100) // RECORDS
        assert (batches[number], 100 + RECORDS * (number + 1)) == (bytes(found.data), found.next_offset)
    whole = read(cache_file, 100, max_bytes=1 << 30)
    assert (b"".join(batches), cache_file.next_offset) == (bytes(whole.data), whole.next_offset)
    if again:
        cache_file.close()


def test_a_file_that_was_cut_off_ends_at_its_last_whole_batch(written):
    """A file cut off anywhere ends at its last whole batch, and the lost part can be appended again."""
    cache_file, batches = written
    cache_file.close()
    ends = [len(batches[0]) * number for number in range(1, BATCHES + 1)]
    for cut in (ends[-1] - 1, ends[-2] + 30, ends[20], ends[20] - 5, ends[0], 61, 5, 0):
        with cache_file.path.open("r+b") as file:
            file.truncate(cut)
        shorter = CacheFile.load(cache_file.path)
        whole = cut // len(batches[0])
        assert 100 + RECORDS * whole == shorter.next_offset
        assert whole * len(batches[0]) == shorter.size
        shorter.close()


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_never_read(written, seed):
    """After bytes were changed, zeroed, removed or added, each read returns what was written or is refused."""
    cache_file, batches = written
    cache_file.close()
    chance = random.Random(seed)
    data = bytearray(cache_file.path.read_bytes())
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + 4096] = bytes(len(data[at : at + 4096]))
            case 2:
                del data[at : at + chance.randint(1, 9000)]
            case _:
                data[at:at] = chance.randbytes(chance.randint(1, 200))
    cache_file.path.write_bytes(data)
    try:
        damaged = CacheFile.load(cache_file.path)
    except DamagedError:
        return
    for offset in range(100, 100 + RECORDS * BATCHES):
        if offset < damaged.next_offset:
            try:
                found = read(damaged, offset, max_bytes=chance.choice((1, 20_000)))
            except DamagedError:
                continue
            at = find_offset(found.data, Offset(offset), len(found.data))
            assert read_header(found.data, at).base_offset <= offset
            number = (read_header(found.data, 0).base_offset - 100) // RECORDS
            assert b"".join(batches[number:]).startswith(bytes(found.data))
    damaged.close()


def test_damage_under_an_open_file_is_seen(written):
    """Each read checks checksums, so damage under an open file is detected."""
    cache_file, _ = written
    data = bytearray(cache_file.path.read_bytes())
    data[len(data) // 2] ^= 1
    cache_file.path.write_bytes(data)
    read(cache_file, 100)
    middle = 100 + RECORDS * BATCHES // 2
    with pytest.raises(DamagedError):
        read(cache_file, middle)


def test_aborted_transactions_are_those_that_overlap(tmp_path):
    """A read returns the aborted transactions that overlap it, even after the file was reopened.

    A transaction extends from its first record to its marker.
    """
    stamps = [(7, {}), (7, {}), (7, {"control": True}), (8, {}), (7, {}), (7, {"control": True}), (8, {})]
    data = b"".join(
        batch(
            RECORDS * number,
            transactional=True,
            producer_id=ProducerId(pid),
            producer_epoch=0,
            base_sequence=-1 if more else 0,
            **more,
        )
        for number, (pid, more) in enumerate(stamps)
    )
    first = AbortedTransaction(ProducerId(7), Offset(0))
    open_at_the_end = AbortedTransaction(ProducerId(8), Offset(9))
    cache_file = CacheFile(tmp_path / f"{0:020}.log", Offset(0))
    cache_file.append(memoryview(data), Offset(RECORDS * len(stamps)), (first, open_at_the_end))
    for one in (cache_file, CacheFile.load(cache_file.path)):
        assert one.transactional
        assert first in read(one, 0).aborted
        assert first in read(one, RECORDS * 2).aborted
        assert (open_at_the_end,) == read(one, RECORDS * 4).aborted
        assert () == read(one, 0, isolation=Isolation.READ_UNCOMMITTED).aborted
        one.close()


def test_an_invalid_list_of_aborted_transactions_is_damage(written):
    """An invalid list of aborted transactions counts as damage: without the list, reads would show aborted records."""
    cache_file, _ = written
    cache_file.path.with_suffix(".aborted").write_text("7 nonsense\n")
    with pytest.raises(DamagedError):
        CacheFile.load(cache_file.path)
