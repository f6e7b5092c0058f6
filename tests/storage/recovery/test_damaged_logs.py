"""Tests of logs with a torn end or a damaged batch: batches before the damage stay, everything after is removed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of, records_of
from tests.doubles.records import batch, sized_batch
from tests.storage.recovery.stopped_logs import cut, log_file, overwrite, stopped

FIRST = log_file(0)


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_at_the_ends(seed):
    """Row 38: random bytes at the ends of `.index` and `.log` are removed, and all records stay."""
    random = Random(seed)
    on_disk = stopped(50, internal_segment_bytes=1000)
    before = records_of(on_disk.log)
    last = on_disk.base_offsets()[-1]
    for suffix in ("log", "index"):
        name = f"{last:020d}.{suffix}"
        on_disk.write(name, on_disk.content(name) + random.randbytes(random.randrange(1, 500)))
    log = on_disk.load(clean=False, recovery_point=50)
    assert (50, before) == (log.log_end_offset, records_of(log))
    assert 50 == log.append(batch(b"next")).base_offset


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_batch_ends_the_log(seed):
    """Row 15: if a byte in record k is changed, exactly the records 0 to k-1 stay. Later segments are removed."""
    random = Random(seed)
    on_disk = stopped()
    victim = random.randrange(12)
    name = log_file(victim - victim % 3)
    content = bytearray(on_disk.content(name))
    # Only these bytes have a checksum. Damage in the bytes before them is repaired (`test_repair.py`).
    position = (victim % 3) * 100 + random.randrange(17, 100)
    content[position] ^= 1 << random.randrange(8)
    on_disk.write(name, bytes(content))
    on_disk.log = on_disk.load(clean=False)
    assert (victim, list(range(victim))) == (on_disk.log.log_end_offset, offsets_of(on_disk.log))
    assert victim == on_disk.log.append(batch(b"next")).base_offset
    assert list(range(victim + 1)) == offsets_of(on_disk.reopen())


@pytest.mark.parametrize("clean", [True, False])
def test_a_torn_tail_is_cut_at_every_length(clean):
    """A torn last batch of any length is removed, even if a marker claims a clean shutdown.

    The batches before it stay.
    """
    on_disk = stopped(3, internal_segment_bytes=10_000)
    content = on_disk.content(FIRST)
    for size in (*range(200, 300, 7), 299):
        on_disk.write(FIRST, content[:size])
        log = on_disk.load(clean=clean)
        assert [0, 1] == offsets_of(log)
        log.close()
        assert content[:200] == on_disk.content(FIRST)


def test_segments_after_a_cut_are_renamed():
    """Segments after lost bytes are renamed to `.deleted`, and unlinked after the delay."""
    on_disk = stopped()
    cut(on_disk, 3, 150)
    log = on_disk.load(clean=False)
    assert 4 == log.log_end_offset
    waiting = [name for name in on_disk.names() if name.endswith(".log.deleted")]
    assert [f"{offset:020d}.log.deleted" for offset in (6, 9)] == waiting
    assert 2 == sum(
        name.endswith(".log.deleted") for name in log.replacer.remove_deleted_files(on_disk.clock.now + 1000)
    )


@pytest.mark.parametrize("kept_bytes", [0, 100, 200])
def test_a_file_that_ends_behind_a_batch_is_not_followed_by_a_hole(kept_bytes):
    """In a log without gaps, the segments after lost records are removed.

    In any other log the lost records look like a gap that compaction has left, so the later segments stay.
    """
    on_disk = stopped()
    cut(on_disk, 3, kept_bytes)
    assert 12 == on_disk.load(clean=False).log_end_offset
    assert 3 + kept_bytes // 100 == on_disk.load(clean=False, dense=True).log_end_offset


def test_segments_without_indexes_are_recovered_in_order():
    """A log can be loaded after a power loss removed the end of one segment and the indexes of the next ones."""
    on_disk = stopped()
    on_disk.write(log_file(3), bytes(300))
    for base_offset in (6, 9):
        on_disk.disk.unlink(Path(f"/data/orders-0/{base_offset:020d}.index"))
    assert [0, 1, 2] == offsets_of(on_disk.load(clean=False, recovery_point=3))


def test_delayed_deletion_spares_new_files_of_the_same_name():
    """Row 51: new segments with the names of deleted segments are not unlinked with the old files."""
    on_disk = stopped()
    cut(on_disk, 3, 150)
    on_disk.log = on_disk.load(clean=False)
    for number in range(4, 12):
        on_disk.log.append(sized_batch(100, timestamp=number))
    assert [0, 3, 6, 9] == on_disk.base_offsets()
    on_disk.log.replacer.remove_deleted_files(on_disk.clock.now + 1000)
    assert list(range(12)) == offsets_of(on_disk.log)
    assert list(range(12)) == offsets_of(on_disk.reopen())


def test_an_end_before_the_start_starts_over():
    """Row 50: if the log ends below the checkpointed start 4, recovery leaves a single empty segment at 4."""
    on_disk = stopped(6)
    cut(on_disk, 0, 150)
    log = on_disk.load(clean=False, log_start_offset=4, reached=6)
    assert (4, 4, 4) == (log.log_start_offset, log.log_end_offset, log.recovery_point + 4)
    assert [4] == [segment.base_offset for segment in log.segments()]
    assert 4 == log.append(batch(b"next")).base_offset


def test_a_preallocated_file_after_a_kill():
    """After a kill the zeros after the last batch of a preallocated file are removed."""
    on_disk = LogOnDisk(preallocate=True, internal_segment_bytes=5000)
    on_disk.log.append(sized_batch(100))
    assert 5000 == len(on_disk.content(FIRST))
    on_disk.kill()
    assert 1 == on_disk.log.log_end_offset
    assert 100 == len(on_disk.content(FIRST))


def test_an_offset_outside_the_segment_is_damage():
    """Recovery cuts the log at a batch whose offsets are too large for the segment, although its checksum is valid.

    Recovery could repair the offset only if a valid batch followed. Here the next batch is damaged in the same way.
    """
    for base_offset in (2**31 + 2, 2**40):
        on_disk = stopped(3, internal_segment_bytes=10_000)
        overwrite(on_disk, 0, 100, base_offset.to_bytes(8, "big"))
        overwrite(on_disk, 0, 200, (2**31 + 1).to_bytes(8, "big"))
        assert 1 == on_disk.load(clean=False).log_end_offset


def test_offsets_that_do_not_ascend_are_damage():
    """If the offset of the last batch does not ascend, the batch is damaged and the log ends before it.

    If a single flipped bit explains the offset, the offset is repaired instead.
    """
    for base_offset in (0, 3, 5):
        on_disk = stopped(7, internal_segment_bytes=10_000)
        content = on_disk.content(FIRST)
        overwrite(on_disk, 0, 600, base_offset.to_bytes(8, "big"))
        assert 6 == on_disk.load(clean=False).log_end_offset
        assert content[:600] == on_disk.content(FIRST)


def test_a_batch_larger_than_the_window_is_recovered():
    """Recovery reads 1 MiB at a time, but reads a larger batch completely."""
    on_disk = LogOnDisk(internal_segment_bytes=10_000_000, max_message_bytes=5_000_000)
    for size in (100, 3_000_000, 100):
        on_disk.log.append(sized_batch(size))
    on_disk.kill()
    assert [0, 1, 2] == offsets_of(on_disk.log)
