"""Tests of rolling, truncating, deleting, renaming and closing a log."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.doubles.logs import DIRECTORY, TINY, LogOnDisk, offsets_of
from tests.doubles.records import batch, sized_batch
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import OffsetOutOfRangeError, PolicyViolationError
from topicfs.storage.model import Offset, Timestamp
from topicfs.storage.segment.roll import segment_settings

HOUR = 3_600_000
FIRST = f"{0:020}"


def of_pairs(count: int) -> LogOnDisk:
    """Return a log of `count` batches of 140 bytes, two in each segment."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for _ in range(count):
        on_disk.log.append(sized_batch(140))
    return on_disk


def of_epochs(count: int, *, batches_each: int) -> LogOnDisk:
    """Return a log of `count` batches, two in each segment, with a new leader epoch after every `batches_each`."""
    on_disk = LogOnDisk(internal_segment_bytes=300)
    for offset in range(count):
        data = sized_batch(140, offset=offset, epoch=offset // batches_each)
        on_disk.log.appender.append_as_follower(data)
    return on_disk


def index_sizes(on_disk: LogOnDisk) -> list[int]:
    """Return the sizes of the two indexes of the first segment."""
    return [len(on_disk.content(f"{FIRST}.{kind}")) for kind in ("index", "timeindex")]


def test_rolls_by_wall_clock_without_timestamps():
    """Row 53: without timestamps a segment rolls by its age. An empty segment does not roll."""
    on_disk = LogOnDisk(segment_ms=HOUR)
    on_disk.clock.advance(HOUR + 1)
    on_disk.log.append(batch(b"a", timestamp=-1))
    assert [0] == on_disk.base_offsets()
    on_disk.log.append(batch(b"b", timestamp=-1))
    assert [0, 1] == on_disk.base_offsets()
    on_disk.clock.advance(HOUR)
    on_disk.log.append(batch(b"c", timestamp=-1))
    assert [0, 1] == on_disk.base_offsets()


def test_rolls_by_record_time():
    """Row 53: if records have timestamps, the age of a segment is measured in record time.

    The age is the time of the next batch minus the time of the segment's first batch. The clock's time is not used.
    """
    on_disk = LogOnDisk(segment_ms=HOUR)
    start = on_disk.clock.now
    on_disk.log.append(batch(b"a", timestamp=start))
    on_disk.clock.advance(2 * HOUR)
    on_disk.log.append(batch(b"b", timestamp=start + HOUR))
    assert [0] == on_disk.base_offsets()
    on_disk.log.append(batch(b"c", timestamp=start + HOUR + 1))
    assert [0, 2] == on_disk.base_offsets()
    on_disk.log.append(batch(b"d", timestamp=start))
    assert [0, 2] == on_disk.base_offsets()


def test_record_time_counts_after_a_restart():
    """Row 53: after a restart the first batch's time is read from the file."""
    on_disk = LogOnDisk(segment_ms=HOUR)
    start = on_disk.clock.now
    on_disk.clock.advance(2 * HOUR)
    on_disk.log.append(batch(b"a", timestamp=start))
    on_disk.reopen()
    on_disk.log.append(batch(b"b", timestamp=start + HOUR + 1))
    assert [0, 1] == on_disk.base_offsets()


@pytest.mark.parametrize("encoded_here", [True, False])
def test_jitter_shortens_the_limit(encoded_here):
    """Row 53: jitter makes a segment roll earlier than after segment.ms, even at a small append."""
    on_disk = LogOnDisk(segment_ms=HOUR, segment_jitter_ms=600_000)
    jitter = on_disk.log.chain.active.settings.jitter_ms
    assert 0 < jitter < 600_000
    start = on_disk.clock.now
    for timestamp in (start, start, start + HOUR - jitter):
        on_disk.log.append(batch(b"a", timestamp=timestamp), encoded_here=encoded_here)
    assert [0] == on_disk.base_offsets()
    on_disk.log.append(batch(b"c", timestamp=start + HOUR - jitter + 1), encoded_here=encoded_here)
    assert [0, 3] == on_disk.base_offsets()


def test_rolls_by_size():
    """Row 54: a segment never exceeds segment.bytes."""
    on_disk = LogOnDisk(internal_segment_bytes=1000)
    for _ in range(25):
        on_disk.log.append(sized_batch(300))
    assert [900] * 8 + [300] == [segment.size_bytes for segment in on_disk.log.segments()]


def test_rolls_when_an_index_is_full():
    """A time index of three slots reserves one slot, so the append after the second entry rolls the log."""
    on_disk = LogOnDisk(segment_index_bytes=36, index_interval_bytes=0)
    for number in range(4):
        on_disk.log.append(sized_batch(100, timestamp=number))
    assert [0, 3] == on_disk.base_offsets()


def test_a_compacted_topic_rolls_for_its_maximal_lag():
    """A compacted topic rolls after the smaller of segment.ms and max.compaction.lag.ms."""
    on_disk = LogOnDisk(segment_ms=HOUR, max_compaction_lag_ms=1000, cleanup_policy=("compact",))
    on_disk.log.append(batch(b"a", key=b"k", timestamp=0))
    on_disk.log.append(batch(b"b", key=b"k", timestamp=1001))
    assert [0, 1] == on_disk.base_offsets()


def test_rolling_an_empty_segment_starts_it_over():
    """Row 55: rolling an empty active segment resets the segment in place, even if its index is full."""
    on_disk = LogOnDisk()
    on_disk.clock.advance(5000)
    assert 0 == on_disk.log.appender.roll()
    active = on_disk.log.chain.active
    assert on_disk.clock.now == active.created_ms
    active.offset_index.slots.trim()
    active.index_full = True
    on_disk.log.append(batch(b"a"))
    assert [0] == on_disk.base_offsets()
    assert not on_disk.log.chain.active.index_full
    assert [0] == offsets_of(on_disk.log)


def test_a_roll_trims_the_segment_it_closes():
    """Row 67: a roll trims the old indexes to their entries, and preallocates the new ones."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    for number in range(10):
        on_disk.log.append(sized_batch(100, timestamp=number))
    assert [1200, 1200] == index_sizes(on_disk)
    on_disk.log.appender.roll()
    assert [9 * 8, 9 * 12] == index_sizes(on_disk)
    on_disk.log.append(batch(b"a"))
    on_disk.log.replacer.truncate_to(10)
    on_disk.log.replacer.truncate_to(9)
    assert [0] == on_disk.base_offsets()
    assert [1200, 1200] == index_sizes(on_disk)


def test_a_file_that_a_failed_roll_left_is_replaced():
    """If a failed roll left a file that has the name of a new segment's file, the new file replaces it."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    on_disk.write("00000000000000000001.index", b"garbage!")
    on_disk.log.appender.roll()
    on_disk.log.append(batch(b"b"))
    assert [0, 1] == offsets_of(on_disk.log)
    on_disk.log.close()
    assert b"" == on_disk.content(f"{1:020}.index")


@pytest.mark.parametrize("target", range(7))
def test_truncation(target):
    """A truncation in any segment lowers the log end and the recovery point, and removes later epochs."""
    on_disk = of_epochs(6, batches_each=2)
    on_disk.log.sync()
    on_disk.log.replacer.truncate_to(target)
    assert list(range(target)) == offsets_of(on_disk.log)
    offsets = on_disk.log.offsets()
    assert (0, target) == (offsets.log_start_offset, offsets.log_end_offset)
    assert target == offsets.recovery_point
    epochs = [(0, 0), (1, 2), (2, 4)]
    assert [(epoch, start) for epoch, start in epochs if start < target] == list(on_disk.log.epochs.entries)
    on_disk.log.append(batch(b"new"))
    assert list(range(target + 1)) == offsets_of(on_disk.log)
    assert list(range(target + 1)) == offsets_of(on_disk.reopen())


def test_truncation_at_the_end_still_drops_an_epoch_that_starts_there():
    """Row 68: truncating at the log end removes an epoch that starts there."""
    on_disk = LogOnDisk()
    on_disk.log.appender.append_as_follower(batch(b"a", offset=0, epoch=1))
    on_disk.log.epochs.assign(2, on_disk.log.log_end_offset)
    on_disk.log.replacer.truncate_to(1)
    assert ((1, 0),) == on_disk.log.epochs.entries
    on_disk.log.appender.append_as_follower(batch(b"b", offset=1, epoch=2))
    assert ((1, 0), (2, 1)) == on_disk.log.epochs.entries


def test_truncation_below_the_first_segment_starts_over():
    """Truncating below the first segment empties the log, which then starts at the given offset."""
    on_disk = LogOnDisk()
    on_disk.log.replacer.truncate_fully_and_start_at(100)
    on_disk.log.append(batch(b"a"))
    on_disk.log.replacer.truncate_to(50)
    assert (50, 50) == (on_disk.log.log_start_offset, on_disk.log.log_end_offset)
    on_disk.log.append(batch(b"b"))
    assert [50] == offsets_of(on_disk.reopen(log_start_offset=50))


def test_deleting_the_oldest_segments():
    """Deletion renames the files, moves the log start to the next segment, and merges earlier epochs."""
    on_disk = of_epochs(8, batches_each=3)
    names = on_disk.log.replacer.delete_oldest_segments(2, "test")
    assert "00000000000000000002.log" in names
    assert "00000000000000000002.log.deleted" in on_disk.names()
    assert 4 == on_disk.log.log_start_offset
    assert ((1, 4), (2, 6)) == on_disk.log.epochs.entries
    assert [4, 5, 6, 7] == offsets_of(on_disk.log)
    with pytest.raises(OffsetOutOfRangeError):
        on_disk.log.read(3, max_bytes=100)
    assert [4, 5, 6, 7] == offsets_of(on_disk.reopen())


@pytest.mark.parametrize(("file", "left"), [("2.log", [2, 4, 6]), ("2.index", [4, 6])])
def test_a_deletion_that_fails_is_continued(file, left):
    """A segment whose deletion fails stays below the log start, and the next deletion removes it."""
    on_disk = of_pairs(8)
    on_disk.disk.fail("rename", suffix=file)
    with pytest.raises(OSError, match="EIO|Input/output"):
        on_disk.log.replacer.delete_oldest_segments(2, "test")
    assert left == [segment.base_offset for segment in on_disk.log.chain.segments]
    assert (4, [4, 5, 6, 7]) == (on_disk.log.log_start_offset, offsets_of(on_disk.log))
    on_disk.log.replacer.delete_oldest_segments(len(left) - 2, "test")
    on_disk.log.replacer.remove_deleted_files(Timestamp(on_disk.clock.now + HOUR))
    assert [4, 5, 6, 7] == offsets_of(on_disk.reopen())
    assert [4, 6] == on_disk.base_offsets()
    assert not [name for name in on_disk.names() if name.startswith("00000000000000000002.")]


def test_files_go_after_their_delay():
    """Row 69: deleted files, including snapshots, are renamed, and unlinked after file.delete.delay.ms."""
    on_disk = of_pairs(6)
    on_disk.log.replacer.delete_oldest_segments(2, "test")
    waiting = [name for name in on_disk.names() if name.endswith(".deleted")]
    assert {"00000000000000000000.index.deleted", "00000000000000000002.snapshot.deleted"} < set(waiting)
    assert [] == on_disk.log.replacer.remove_deleted_files(on_disk.clock.now + 999)
    assert waiting == sorted(on_disk.log.replacer.remove_deleted_files(on_disk.clock.now + 1000))
    assert [] == [name for name in on_disk.names() if name.endswith(".deleted")]
    assert [] == on_disk.log.replacer.remove_deleted_files(on_disk.clock.now + 1000)


def test_deleting_every_segment_rolls_first():
    """Deleting all segments leaves an empty segment at the end. Deleting again changes nothing."""
    on_disk = of_pairs(3)
    on_disk.log.replacer.delete_oldest_segments(99, "test")
    assert [3] == on_disk.base_offsets()
    assert [] == on_disk.log.replacer.delete_oldest_segments(99, "test")
    on_disk.reopen()
    assert (3, 3) == (on_disk.log.log_start_offset, on_disk.log.log_end_offset)
    assert 3 == on_disk.log.append(batch(b"a")).base_offset


def test_delete_records():
    """DeleteRecords moves the log start to the given offset, but never back. The offset -1 means the high watermark.

    A compacted topic refuses DeleteRecords.
    """
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a", b"b", b"c"))
    assert 1 == on_disk.log.delete_records(1)
    assert [1, 2] == offsets_of(on_disk.log)
    assert 1 == on_disk.log.delete_records(0)
    for offset in (4, -2):
        with pytest.raises(OffsetOutOfRangeError):
            on_disk.log.delete_records(offset)
    assert 3 == on_disk.log.delete_records(-1)
    assert [] == offsets_of(on_disk.log)
    on_disk.log.update_config(TopicConfig(**TINY, cleanup_policy=("compact",)))
    with pytest.raises(PolicyViolationError):
        on_disk.log.delete_records(3)


def test_new_settings_work_at_once():
    """A changed segment.bytes is used by the next append."""
    on_disk = LogOnDisk()
    for _ in range(2):
        on_disk.log.append(sized_batch(300))
    on_disk.log.update_config(TopicConfig(**TINY | {"internal_segment_bytes": 700}))
    on_disk.log.append(sized_batch(300))
    assert [0, 2] == on_disk.base_offsets()
    assert 700 == on_disk.log.config.effective_segment_bytes


def test_renaming_the_directory():
    """After the directory was renamed, appends, rolls, epochs and the close use the new directory."""
    on_disk = of_pairs(1)
    on_disk.log.appender.roll()
    target = Path("/data/orders-0.0123456789abcdef0123456789abcdef-delete")
    on_disk.log.rename(target)
    assert target == on_disk.log.directory
    for offset in (1, 2, 3):
        on_disk.log.appender.append_as_follower(sized_batch(140, offset=offset, epoch=offset))
    assert [0, 1, 2, 3] == offsets_of(on_disk.log)
    on_disk.log.close()
    assert not on_disk.disk.exists(Path("/data/orders-0"))
    assert b"0\n4\n0 0\n1 1\n2 2\n3 3\n" == on_disk.disk.read_bytes(target / "leader-epoch-checkpoint")


def test_a_close_leaves_what_a_clean_start_needs():
    """Row 52: a close trims files, creates an empty segment's indexes, writes a snapshot, and syncs."""
    on_disk = LogOnDisk(internal_segment_bytes=300, preallocate=True)
    on_disk.log.append(sized_batch(140, timestamp=5))
    on_disk.log.appender.roll()
    on_disk.log.close()
    on_disk.disk.crash(keep=0.0)
    assert {
        "00000000000000000000.log": 140,
        "00000000000000000000.index": 0,
        "00000000000000000000.timeindex": 12,
        "00000000000000000001.log": 0,
        "00000000000000000001.index": 0,
        "00000000000000000001.timeindex": 0,
        "00000000000000000001.snapshot": 10,
        "leader-epoch-checkpoint": 8,
    } == {name: len(on_disk.content(name)) for name in on_disk.names()}


def test_an_idle_log_is_closed_without_writes():
    """Opening, reading and closing an idle log writes and syncs nothing, because thousands of logs may be idle."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    for timestamp in (10, 20, 30):
        on_disk.log.append(sized_batch(100, timestamp=timestamp))
    on_disk.log.close()
    before = on_disk.disk.tree()
    del on_disk.disk.calls[:]
    on_disk.log = on_disk.load(clean=True)
    assert 3 == on_disk.log.offsets().log_end_offset
    assert 1 == on_disk.log.offset_for_timestamp(Timestamp(15)).offset
    on_disk.log.close()
    done = {operation for operation, _ in on_disk.disk.calls}
    assert done.isdisjoint(
        {"pwrite", "truncate", "sync", "sync_directory", "write_bytes", "rename", "unlink"}
    )
    assert before == on_disk.disk.tree()


def test_indexes_get_their_full_size_with_the_first_entry_after_a_clean_start():
    """After a clean start an index grows to its full size when it gets its first entry."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    on_disk.log.append(sized_batch(100, timestamp=1))
    on_disk.log = on_disk.reopen()
    assert [0, 12] == index_sizes(on_disk)
    on_disk.log.append(sized_batch(100, timestamp=2))
    on_disk.log.append(sized_batch(100, timestamp=3))
    assert [1200, 1200] == index_sizes(on_disk)
    assert [0] == on_disk.base_offsets()


@pytest.mark.parametrize("end", ["append", "roll", "delete"])
def test_whatever_came_after_a_clean_start_is_on_disk_after_the_close(end: str):
    """The close syncs whatever was changed after a clean start."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    on_disk.log.append(sized_batch(100, timestamp=1))
    if end == "roll":
        on_disk.log.appender.roll()
    on_disk.log = on_disk.reopen()
    if end == "append":
        on_disk.log.append(sized_batch(100, timestamp=2))
    elif end == "roll":
        on_disk.log.appender.roll()  # The active segment is empty and is reset in place.
    else:
        on_disk.log.delete_records(Offset(1))
    on_disk.log.close()
    closed = {name: on_disk.content(name) for name in on_disk.names()}
    assert all(len(closed[name]) < 1200 for name in closed if name.endswith("index"))
    on_disk.disk.crash(keep=0.0)
    assert closed == {name: on_disk.content(name) for name in on_disk.names()}


def test_what_a_clean_start_completed_is_on_disk_after_the_close():
    """The close syncs the names and indexes that a clean start completed."""
    on_disk = LogOnDisk()
    on_disk.log.append(sized_batch(100, timestamp=1))
    on_disk.log.close()
    name = f"{FIRST}.log"
    on_disk.disk.rename(DIRECTORY / name, DIRECTORY / f"{name}.swap")
    on_disk.disk.sync_directory(DIRECTORY)
    on_disk.load(clean=True).close()
    on_disk.disk.crash(keep=0.0)
    assert name in on_disk.names()
    assert [0, 12] == index_sizes(on_disk)


def test_a_close_that_fails_is_reported_and_still_closes():
    """A close that fails raises the error, so that no clean marker is written, but the log is closed."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    on_disk.disk.fail("sync", suffix=".log")
    with pytest.raises(OSError, match="Input/output"):
        on_disk.log.close()
    on_disk.log.close()


def test_settings_of_a_segment():
    """A segment takes its index settings, preallocation and jitter from the topic's settings."""
    config = TopicConfig(
        segment_index_bytes=100, index_interval_bytes=7, preallocate=True, segment_bytes=2**20
    )
    assert (7, 100, 2**20, 0) == segment_settings(config)
    assert 0 == segment_settings(TopicConfig()).preallocated_bytes


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_files_whose_new_name_finds_no_room_go_at_once(number):
    """If the disk has no room for the new name of a deleted segment's file, the file is unlinked immediately."""
    on_disk = LogOnDisk()
    for value in (b"a", b"b", b"c"):
        on_disk.log.append(batch(value))
        on_disk.log.appender.roll()
    on_disk.disk.fail("rename", number=number, times=100, suffix="log")
    on_disk.log.replacer.delete_oldest_segments(2, "test")
    assert [2, 3] == on_disk.base_offsets()
    assert [] == [name for name in on_disk.names() if name[:20] in (FIRST, f"{1:020}") and ".log" in name]
    on_disk.clock.advance(60_000)
    on_disk.log.replacer.remove_deleted_files(on_disk.clock())
    assert [] == [name for name in on_disk.names() if name.startswith(FIRST)]


def test_a_followers_start_moves_as_its_leaders():
    """A follower's log start moves with the leader's log start, whatever the cleanup policy is.

    The log start never moves back, and the active segment stays.
    """
    on_disk = LogOnDisk(internal_segment_bytes=300, cleanup_policy=("compact",))
    for offset in range(6):
        on_disk.log.appender.append_as_follower(sized_batch(150, offset=offset, epoch=2))
    assert [0, 2, 4] == on_disk.base_offsets()
    on_disk.log.replacer.follow_start(Offset(3))
    assert (3, [2, 4]) == (on_disk.log.log_start_offset, on_disk.base_offsets())
    on_disk.log.replacer.follow_start(Offset(1))
    assert 3 == on_disk.log.log_start_offset
    on_disk.log.replacer.follow_start(Offset(100))
    assert (6, [4]) == (on_disk.log.log_start_offset, on_disk.base_offsets())


def test_a_follower_notes_an_epoch_in_which_nothing_was_written():
    """A follower's epoch file gets an epoch without batches. The next epoch at the same offset replaces it."""
    on_disk = LogOnDisk()
    on_disk.log.appender.append_as_follower(sized_batch(150, offset=0, epoch=2))
    on_disk.log.appender.follow_epoch(4, Offset(1))
    assert b"0\n2\n2 0\n4 1\n" == on_disk.content("leader-epoch-checkpoint")
    on_disk.log.appender.append_as_follower(sized_batch(150, offset=1, epoch=5))
    assert ((2, 0), (5, 1)) == on_disk.log.epochs.entries
