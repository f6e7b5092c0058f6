"""Loading a directory: what is finished, what is rebuilt, what is cut, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from storage.disk.native import NativeFileSystem, system_clock
from storage.errors import InvalidNameError
from storage.recovery.load import load_log
from tests.doubles.logs import LogOnDisk, offsets_of, records_of
from tests.doubles.records import batch, sized_batch

FIRST = "00000000000000000000"


def filled(count: int = 12, **settings) -> LogOnDisk:
    """A log of 100-byte batches, three to a segment, timestamps 10 apart."""
    on_disk = LogOnDisk(**({"internal_segment_bytes": 300, "index_interval_bytes": 0} | settings))
    for number in range(count):
        on_disk.log.append(sized_batch(100, timestamp=number * 10))
    return on_disk


def index_files(on_disk: LogOnDisk) -> dict[str, bytes]:
    return {name: on_disk.content(name) for name in on_disk.names() if name.endswith("index")}


def test_an_empty_directory_is_an_empty_log():
    """Row 56: no segment at all becomes one at offset 0, or at the checkpointed start; its indexes are made."""
    on_disk = LogOnDisk()
    assert (0, 0) == (on_disk.log.log_start_offset, on_disk.log.log_end_offset)
    assert [
        f"{FIRST}.index",
        f"{FIRST}.log",
        f"{FIRST}.timeindex",
        "leader-epoch-checkpoint",
    ] == on_disk.names()
    other = LogOnDisk()
    for name in other.names():
        other.disk.unlink(Path("/data/orders-0") / name)
    log = other.load(clean=True, log_start_offset=7)
    assert (7, 7) == (log.log_start_offset, log.log_end_offset)


def test_a_directory_that_is_no_partitions():
    """The partition is read from the directory's name."""
    on_disk = LogOnDisk()
    on_disk.disk.make_directory(Path("/data/nothing"))
    arguments = {"files": on_disk.disk, "config": on_disk.config, "clock": on_disk.clock, "clean": True}
    with pytest.raises(InvalidNameError):
        load_log(Path("/data/nothing"), **arguments)
    assert ("orders", 0) == (on_disk.log.topic, on_disk.log.number)


@pytest.mark.parametrize("recovery_point", [0, 10, 12])
def test_the_same_log_comes_back(recovery_point):
    """Row 33: clean and unclean: same end, same last index offset, same entries; the last time entry is the maximum."""
    on_disk = filled()
    on_disk.log.sync()
    active = on_disk.log.chain.active
    before = (list(active.offset_index), active.time_index.entries)
    on_disk.reopen()
    after_clean = on_disk.log.chain.active
    assert before[0] == list(after_clean.offset_index)
    assert (110, 11) == after_clean.time_index.last
    on_disk.kill(recovery_point=recovery_point)
    active = on_disk.log.chain.active
    assert (12, before[0]) == (on_disk.log.log_end_offset, list(active.offset_index))
    assert (110, 11) == active.time_index.last
    assert recovery_point == on_disk.log.offsets().recovery_point
    on_disk.log.sync()
    assert 12 == on_disk.log.offsets().recovery_point


def test_a_clean_start_sets_the_recovery_point():
    """After a close in order everything is flushed."""
    on_disk = filled()
    assert 12 == on_disk.reopen(recovery_point=3).recovery_point


def test_lost_indexes_are_rebuilt():
    """Row 34: deleted index files come back with the same bytes, and every lookup finds what it found."""
    on_disk = filled()
    on_disk.log.close()
    before = index_files(on_disk)
    for name in before:
        on_disk.disk.unlink(Path("/data/orders-0") / name)
    log = on_disk.load(clean=False)
    assert list(range(12)) == offsets_of(log)
    assert list(range(12)) == [log.offset_for_timestamp(n * 10).offset for n in range(12)]
    log.close()
    assert before == index_files(on_disk)


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_is_made_from_its_log(clean):
    """Clean or not: a segment without `.index` or without `.timeindex` is gone through."""
    on_disk = filled()
    on_disk.log.close()
    before = index_files(on_disk)
    on_disk.disk.unlink(Path(f"/data/orders-0/{FIRST}.index"))
    on_disk.disk.unlink(Path("/data/orders-0/00000000000000000003.timeindex"))
    log = on_disk.load(clean=clean, recovery_point=12)
    log.close()
    assert before == index_files(on_disk)
    assert list(range(12)) == offsets_of(log)


def damaged_indexes():
    """What may become of an index: of which file, how it then looks, and whether a broker could have left it so."""
    for kind, slot in (("index", 8), ("timeindex", 12)):
        yield pytest.param(kind, lambda data: data.ljust(1200, b"\0"), id=f"{kind} never trimmed")
        yield pytest.param(kind, lambda data, slot=slot: data + bytes(slot), id=f"{kind} with an unused slot")
        yield pytest.param(kind, lambda data, slot=slot: data[:-slot] + bytes(slot), id=f"{kind} unwritten")
        yield pytest.param(kind, lambda _data, slot=slot: bytes(slot), id=f"{kind} of an unused slot alone")
        yield pytest.param(kind, lambda data: data[:-1], id=f"{kind} torn")
        yield pytest.param(kind, lambda data: data[:-4] + b"\xff" * 4, id=f"{kind} of another log")
    yield pytest.param("timeindex", lambda _data: b"", id="timeindex without an entry")
    yield pytest.param("timeindex", lambda data: data[12:] + data[:12], id="timeindex that descends")


@pytest.mark.parametrize(("kind", "damage"), list(damaged_indexes()))
@pytest.mark.parametrize("base_offset", [3, 9])
@pytest.mark.parametrize("way", ["clean", "below the recovery point", "read-only", "read-only and clean"])
def test_an_index_that_cannot_be_the_logs_is_made_anew(kind, damage, base_offset, way):
    """Wherever it lies, and whoever left it: in a sealed segment below the recovery point too, and in the last one."""
    on_disk = filled()
    on_disk.log.close()
    before = index_files(on_disk)
    name = f"{base_offset:020}.{kind}"
    on_disk.write(name, damage(before[name]))
    reading = "read-only" in way
    log = on_disk.load(
        clean="clean" in way,
        recovery_point=12,
        disk=on_disk.disk.read_only_view() if reading else None,
    )
    assert [20, 50, 80, 110] == [segment.largest_timestamp for segment in log.segments()]
    assert list(range(12)) == [log.offset_for_timestamp(n * 10).offset for n in range(12)]
    assert list(range(12)) == [log.locate(n).batch.base_offset for n in range(12)]
    log.close()
    assert (damage(before[name]) if reading else before[name]) == on_disk.content(name)


def test_what_is_made_anew_below_the_recovery_point_is_on_disk():
    """Nobody looks there a second time: a power loss must not bring back what was replaced."""
    on_disk = filled()
    on_disk.log.close()
    before = index_files(on_disk)
    for name in before:
        on_disk.write(name, b"")
    on_disk.load(clean=False, recovery_point=9)
    on_disk.disk.crash(keep=0.0)
    assert {name: before[name] for name in before if name < "00000000000000000009"} == {
        name: data for name, data in index_files(on_disk).items() if name < "00000000000000000009"
    }


def test_a_record_of_1970_has_an_entry_that_reads_as_unused():
    """Timestamp 0 at the first offset is an entry of zeros: right where the first batch is that one record."""
    on_disk = LogOnDisk(internal_segment_bytes=300, index_interval_bytes=0)
    for _ in range(6):
        on_disk.log.append(sized_batch(100, timestamp=0))
    on_disk.log.close()
    assert bytes(12) == on_disk.content(f"{FIRST}.timeindex")
    on_disk.disk.calls.clear()
    log = on_disk.load(clean=True)
    assert [] == [path for operation, path in on_disk.disk.calls if operation == "pwrite" and FIRST in path]
    assert [0, 0] == [segment.largest_timestamp for segment in log.segments()]
    on_disk.write("00000000000000000003.timeindex", bytes(12) + bytes(12))
    on_disk.load(clean=True).close()
    assert bytes(12) == on_disk.content("00000000000000000003.timeindex")


@pytest.mark.parametrize("clean", [False, True])
def test_an_unused_slot_is_no_entry_where_later_records_follow_one_of_1970(clean):
    """Else the segment's newest record would be of 1970 for retention, and lookups by time would pass it over."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for timestamp in (0, 5, 7, 9):
        on_disk.log.append(sized_batch(100, timestamp=timestamp))
    on_disk.log.close()
    before = index_files(on_disk)
    on_disk.write(f"{FIRST}.timeindex", bytes(12))
    log = on_disk.load(clean=clean, recovery_point=4)
    assert [7, 9] == [segment.largest_timestamp for segment in log.segments()]
    assert 1 == log.offset_for_timestamp(5).offset
    log.close()
    assert before == index_files(on_disk)


def test_garbage_in_indexes_is_replaced():
    """Rows 12 and 34: index files full of random bytes are made again; all offsets and times are found."""
    on_disk = filled()
    on_disk.log.close()
    before = index_files(on_disk)
    random = Random(5)
    for name in before:
        on_disk.write(name, random.randbytes(random.randrange(200)))
    log = on_disk.load(clean=False)
    for number in range(12):
        assert number == log.locate(number).batch.base_offset
        assert number == log.offset_for_timestamp(number * 10).offset
    log.close()
    assert before == index_files(on_disk)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_garbage_in_the_last_segments_index_after_a_clean_stop_is_replaced(suffix):
    """Whatever its size; else the partition could not be opened, or an append would go by it."""
    whole = filled(internal_segment_bytes=10_000)
    whole.log.close()
    name = f"{FIRST}.{suffix}"
    before = whole.content(name)
    for seed in range(40):
        random = Random(seed)
        whole.write(name, random.randbytes(random.choice([1, 7, 8, 12, 24, 96, 120])))
        log = whole.load(clean=True)
        assert list(range(12)) == offsets_of(log)
        assert list(range(12)) == [log.offset_for_timestamp(10 * number).offset for number in range(12)]
        log.close()
        assert before == whole.content(name), seed


def test_orphan_indexes_are_removed():
    """Row 35: index files without a `.log` go; other people's files stay."""
    on_disk = filled(2)
    on_disk.log.close()
    for name in (
        "00000000000000000002.index",
        "00000000000000000005.timeindex",
        "00000000000000000005.txnindex",
    ):
        on_disk.write(name, b"x" * 24)
    kept = {"00000000000000000000.view": b"ours", "notes": b"theirs"}
    for name, data in kept.items():
        on_disk.write(name, data)
    on_disk.load(clean=False)
    assert set(kept) < set(on_disk.names())
    assert not {"00000000000000000002.index", "00000000000000000005.timeindex"} & set(on_disk.names())
    assert "00000000000000000005.txnindex" not in on_disk.names()


def test_deleted_files_vanish():
    """Row 36: what was renamed `.deleted` and not unlinked goes at the next load."""
    on_disk = filled()
    on_disk.log.delete_oldest_segments(2, "test")
    assert any(name.endswith(".deleted") for name in on_disk.names())
    on_disk.reopen()
    assert [] == [name for name in on_disk.names() if name.endswith(".deleted")]
    assert 6 == on_disk.log.log_start_offset


def test_truncation_after_a_restart():
    """Row 37: truncated to 3 after a restart: one segment, end 3."""
    on_disk = filled(5, internal_segment_bytes=10_000)
    on_disk.reopen()
    on_disk.log.truncate_to(3)
    assert [0] == on_disk.base_offsets()
    assert (3, [0, 1, 2]) == (on_disk.log.log_end_offset, offsets_of(on_disk.log))


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_at_the_ends(seed):
    """Row 38: garbage appended to `.index` and `.log`: end and every record are what they were."""
    random = Random(seed)
    on_disk = filled(50, internal_segment_bytes=1000)
    before = records_of(on_disk.log)
    on_disk.log.close()
    last = on_disk.base_offsets()[-1]
    for suffix in ("log", "index"):
        name = f"{last:020d}.{suffix}"
        on_disk.write(name, on_disk.content(name) + random.randbytes(random.randrange(1, 500)))
    log = on_disk.load(clean=False, recovery_point=50)
    assert (50, before) == (log.log_end_offset, records_of(log))
    assert 50 == log.append(batch(b"next")).base_offset


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_batch_ends_the_log(seed):
    """Row 15: one byte of record k changed: exactly 0 to k-1 survive, later segments go."""
    random = Random(seed)
    on_disk = filled()
    on_disk.log.close()
    victim = random.randrange(12)
    name = f"{victim - victim % 3:020d}.log"
    content = bytearray(on_disk.content(name))
    # Base offset, leader epoch and magic are not under the checksum.
    position = (victim % 3) * 100 + random.choice([*range(8, 12), *range(17, 100)])
    content[position] ^= 1 << random.randrange(8)
    on_disk.write(name, bytes(content))
    on_disk.log = on_disk.load(clean=False)
    assert (victim, list(range(victim))) == (on_disk.log.log_end_offset, offsets_of(on_disk.log))
    assert victim == on_disk.log.append(batch(b"next")).base_offset
    assert list(range(victim + 1)) == offsets_of(on_disk.reopen())


def test_a_torn_tail_is_cut_at_every_length():
    """However much of the last batch made it to disk, whole batches stay and the rest is cut."""
    complete = filled(3, internal_segment_bytes=10_000)
    complete.log.close()
    content = complete.content(f"{FIRST}.log")
    for size in range(200, 300, 7):
        on_disk = LogOnDisk(internal_segment_bytes=10_000)
        on_disk.log.close()
        on_disk.write(f"{FIRST}.log", content[:size])
        assert [0, 1] == offsets_of(on_disk.load(clean=False))
        assert content[:200] == on_disk.content(f"{FIRST}.log")


def test_segments_after_a_cut_are_renamed():
    """What follows lost bytes is no part of the log; its files wait as `.deleted`, then go."""
    on_disk = filled()
    on_disk.log.close()
    on_disk.write("00000000000000000003.log", on_disk.content("00000000000000000003.log")[:150])
    log = on_disk.load(clean=False)
    assert 4 == log.log_end_offset
    waiting = [name for name in on_disk.names() if name.endswith(".log.deleted")]
    assert [f"{offset:020d}.log.deleted" for offset in (6, 9)] == waiting
    assert 2 == sum(
        name.endswith(".log.deleted") for name in log.remove_deleted_files(on_disk.clock.now + 1000)
    )


@pytest.mark.parametrize("kept_bytes", [0, 100, 200])
def test_a_file_that_ends_behind_a_batch_is_not_followed_by_a_hole(kept_bytes):
    """In a dense log what follows lost records goes, though no byte was to be cut; elsewhere it is compaction's hole."""
    on_disk = filled()
    on_disk.log.close()
    name = "00000000000000000003.log"
    on_disk.write(name, on_disk.content(name)[:kept_bytes])
    assert 12 == on_disk.load(clean=False).log_end_offset
    assert 3 + kept_bytes // 100 == on_disk.load(clean=False, dense=True).log_end_offset


def test_segments_without_indexes_are_recovered_in_order():
    """A power cut may lose both the end of one segment and the index files of the next: the log loads all the same."""
    on_disk = filled()
    on_disk.log.close()
    on_disk.write("00000000000000000003.log", bytes(300))
    for base_offset in (6, 9):
        on_disk.disk.unlink(Path(f"/data/orders-0/{base_offset:020d}.index"))
    assert [0, 1, 2] == offsets_of(on_disk.load(clean=False, recovery_point=3))


def test_delayed_deletion_spares_new_files_of_the_same_name():
    """Row 51: segments made again at the offsets of those removed by recovery are not deleted in their stead."""
    on_disk = filled()
    on_disk.log.close()
    on_disk.write("00000000000000000003.log", on_disk.content("00000000000000000003.log")[:150])
    on_disk.log = on_disk.load(clean=False)
    for number in range(4, 12):
        on_disk.log.append(sized_batch(100, timestamp=number))
    assert [0, 3, 6, 9] == on_disk.base_offsets()
    on_disk.log.remove_deleted_files(on_disk.clock.now + 1000)
    assert list(range(12)) == offsets_of(on_disk.log)
    assert list(range(12)) == offsets_of(on_disk.reopen())


def test_what_lies_below_the_recovery_point_is_not_looked_at():
    """Recovery begins with the segment that holds the recovery point; damage before it goes unnoticed."""
    on_disk = filled()
    on_disk.log.close()
    name = f"{FIRST}.log"
    on_disk.write(name, on_disk.content(name)[:-1] + b"\xff")
    assert 12 == on_disk.load(clean=False, recovery_point=3).log_end_offset
    assert 2 == on_disk.load(clean=False, recovery_point=2).log_end_offset


def test_a_clean_start_looks_at_nothing():
    """With the clean marker a flipped byte goes unnoticed, as in a broker."""
    on_disk = filled(3)
    on_disk.log.close()
    name = f"{FIRST}.log"
    on_disk.write(name, on_disk.content(name)[:-1] + b"\xff")
    assert 3 == on_disk.load(clean=True).log_end_offset


def test_a_torn_tail_after_a_clean_start():
    """The marker is wrong then: better to look than to append behind half a batch."""
    on_disk = filled(3, internal_segment_bytes=10_000)
    on_disk.log.close()
    on_disk.write(f"{FIRST}.log", on_disk.content(f"{FIRST}.log")[:-1])
    log = on_disk.load(clean=True)
    assert 2 == log.append(batch(b"next")).base_offset
    assert [0, 1, 2] == offsets_of(log)


def test_lost_epochs_come_back():
    """Rows 14 and 48: epochs are rebuilt from the batches: (1,0) (2,1) (3,3); and (0,104) (1,106) (2,110)."""
    on_disk = LogOnDisk()
    for offset, epoch in ((0, 1), (1, 2), (2, 2), (3, 3)):
        on_disk.log.append_as_follower(batch(b"a", offset=offset, epoch=epoch))
    on_disk.log.close()
    on_disk.write("leader-epoch-checkpoint", b"")
    assert ((1, 0), (2, 1), (3, 3)) == on_disk.load(clean=False).epochs.entries
    other = LogOnDisk()
    for offset, epoch in ((104, 0), (106, 1), (108, 1), (110, 2)):
        other.log.append_as_follower(batch(b"a", offset=offset, epoch=epoch))
    other.log.close()
    other.write("leader-epoch-checkpoint", b"")
    assert ((0, 104), (1, 106), (2, 110)) == other.load(clean=False).epochs.entries


def test_epochs_outside_the_log_go():
    """Entries at or after the end go; those before the checkpointed start collapse into one that begins there."""
    on_disk = LogOnDisk()
    for offset in range(6):
        on_disk.log.append_as_follower(batch(b"a", offset=offset, epoch=offset))
    on_disk.log.close()
    on_disk.write("leader-epoch-checkpoint", b"0\n5\n0 0\n1 1\n2 2\n4 4\n9 9\n")
    log = on_disk.load(clean=True, log_start_offset=3)
    assert ((2, 3), (4, 4)) == log.epochs.entries


def test_an_end_before_the_start_starts_over():
    """Row 50: damage below the checkpointed start: everything goes, one segment at 4, start and end 4."""
    on_disk = filled(6)
    on_disk.log.close()
    on_disk.write(f"{FIRST}.log", on_disk.content(f"{FIRST}.log")[:150])
    log = on_disk.load(clean=False, log_start_offset=4)
    assert (4, 4, 4) == (log.log_start_offset, log.log_end_offset, log.recovery_point + 4)
    assert [4] == [segment.base_offset for segment in log.segments()]
    assert 4 == log.append(batch(b"next")).base_offset


def test_checkpointed_offsets_are_kept_within_the_log():
    """The start is at least the first base, the high watermark within [start, end], the recovery point below the end."""
    on_disk = filled(6)
    on_disk.log.delete_oldest_segments(1, "test")
    log = on_disk.reopen(log_start_offset=1, high_watermark=1)
    assert (3, 3) == (log.log_start_offset, log.high_watermark)
    log.close()
    log = on_disk.load(clean=False, log_start_offset=5, high_watermark=99, recovery_point=99)
    assert (5, 6, 6) == (log.log_start_offset, log.high_watermark, log.recovery_point)


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_active_segment_without_indexes(clean):
    """Row 52: a fresh segment may have only its `.log`; loading makes the rest."""
    on_disk = filled(3)
    on_disk.log.close()
    on_disk.write("00000000000000000003.log", b"")
    log = on_disk.load(clean=clean)
    assert [0, 3] == [segment.base_offset for segment in log.segments()]
    assert 1200 == len(on_disk.content("00000000000000000003.index"))
    assert 3 == log.append(batch(b"next")).base_offset


def test_an_untrimmed_index_after_a_clean_start_is_made_anew():
    """A broker takes zeros for entries, so that its next append rolls, and its lookups by time pass the segment over."""
    on_disk = filled(2)
    on_disk.log.close()
    on_disk.write(f"{FIRST}.index", on_disk.content(f"{FIRST}.index").ljust(1200, b"\0"))
    on_disk.log = on_disk.load(clean=True)
    on_disk.log.append(sized_batch(80))
    assert [0] == on_disk.base_offsets()


def test_a_preallocated_file_after_a_kill():
    """Zeros behind the last batch are no batches: the end is found and the file cut."""
    on_disk = LogOnDisk(preallocate=True, internal_segment_bytes=5000)
    on_disk.log.append(sized_batch(100))
    assert 5000 == len(on_disk.content(f"{FIRST}.log"))
    on_disk.kill()
    assert 1 == on_disk.log.log_end_offset
    assert 100 == len(on_disk.content(f"{FIRST}.log"))


def test_an_offset_outside_the_segment_is_damage():
    """A batch whose last offset the segment cannot hold ends the log there, though its checksum is right.

    Unless the next one tells what it was; so here that one is as far away.
    """
    on_disk = filled(3, internal_segment_bytes=10_000)
    on_disk.log.close()
    for base_offset in (2**31 + 2, 2**40):
        content = bytearray(on_disk.content(f"{FIRST}.log"))
        content[100:108] = base_offset.to_bytes(8, "big")
        content[200:208] = (2**31 + 1).to_bytes(8, "big")
        on_disk.write(f"{FIRST}.log", bytes(content))
        assert 1 == on_disk.load(clean=False).log_end_offset


def test_offsets_that_do_not_ascend_are_damage():
    """The base offset is not under the checksum: a last batch that would go back, or stand still, ends the log.

    Unless one flipped bit did it.
    """
    for base_offset in (0, 3, 5):
        on_disk = filled(7, internal_segment_bytes=10_000)
        on_disk.log.close()
        content = bytearray(on_disk.content(f"{FIRST}.log"))
        content[600:608] = base_offset.to_bytes(8, "big")
        on_disk.write(f"{FIRST}.log", bytes(content))
        assert 6 == on_disk.load(clean=False).log_end_offset
        assert content[:600] == on_disk.content(f"{FIRST}.log")


def test_a_batch_larger_than_the_window_is_recovered():
    """Recovery reads a mebibyte at a time; a larger batch is read whole."""
    on_disk = LogOnDisk(internal_segment_bytes=10_000_000, max_message_bytes=5_000_000)
    for size in (100, 3_000_000, 100):
        on_disk.log.append(sized_batch(size))
    on_disk.kill()
    assert [0, 1, 2] == offsets_of(on_disk.log)


def test_snapshots_after_a_kill():
    """Recovered bases and the end get their snapshots; one that is none is made again."""
    on_disk = filled(4)
    on_disk.write("00000000000000000003.snapshot", b"x" * 56)
    on_disk.kill()
    empty = bytes.fromhex("000148674bc700000000")
    assert [empty, empty] == [on_disk.content(f"{offset:020d}.snapshot") for offset in (3, 4)]


def test_on_a_real_disk(tmp_path):
    """The same code over files: append, roll, kill, load, close, load."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    on_disk = LogOnDisk(internal_segment_bytes=300)
    arguments = {"files": NativeFileSystem(), "config": on_disk.config, "clock": system_clock}
    log = load_log(directory, **arguments, clean=False)
    for _ in range(10):
        log.append(sized_batch(140), durable=True)
    log = load_log(directory, **arguments, clean=False)
    assert list(range(10)) == offsets_of(log)
    log.append(sized_batch(140))
    log.close()
    log = load_log(directory, **arguments, clean=True)
    assert list(range(11)) == offsets_of(log)
    assert 140 == len(log.open_segment_file("00000000000000000010.log"))
    log.close()
