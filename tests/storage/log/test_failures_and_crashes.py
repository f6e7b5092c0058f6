"""Tests of a failure during a change that is followed by a crash. Random tests of a partition found these cases."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of, records_of
from tests.doubles.mortal_disk import End, MortalDisk, dies
from tests.doubles.records import NOW, batch, marker, produced, sized_batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.codec.columns import decode
from topicfs.storage.compaction.cleaner import clean, cleaning_params
from topicfs.storage.compaction.selection import plan
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.indexes.time_index import TimeIndex
from topicfs.storage.indexes.transaction_index import AbortedSpan
from topicfs.storage.model import Isolation, Offset
from topicfs.storage.producers.append import Origin


def committed(on_disk: LogOnDisk) -> list[bytes | None]:
    fetched = on_disk.log.read(Offset(0), max_bytes=10_000, isolation=Isolation.READ_COMMITTED)
    return [each.value for columns in decode(fetched.data, aborted=fetched.aborted) for each in columns]


def compacted() -> LogOnDisk:
    return LogOnDisk(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


def cleaned(on_disk: LogOnDisk) -> None:
    clean(on_disk.log, plan(cleaning_params(on_disk.log, Offset(0), NOW)), now=NOW)


def test_cleaning_flushes_the_newer_record_first():
    """Cleaning flushes the newer record before it removes the older one, so that no crash loses both records."""
    on_disk = compacted()
    on_disk.log.append(batch(b"old", key=b"key", timestamp=NOW), durable=True)
    on_disk.log.appender.roll()
    on_disk.log.append(batch(b"new", key=b"key", timestamp=NOW))
    on_disk.log.appender.roll()
    cleaned(on_disk)
    on_disk.crash(keep=0)
    assert [b"new"] == committed(on_disk)


def test_cleaning_flushes_an_abort_marker_first():
    """Cleaning flushes an abort marker, even of the active segment, before it removes the aborted records."""
    on_disk = compacted()
    on_disk.log.append(produced(b"aborted", key=b"key", txn=True), durable=True)
    on_disk.log.appender.roll()
    on_disk.log.append(marker(commit=False), origin=Origin.COORDINATOR)
    cleaned(on_disk)
    on_disk.crash(keep=0)
    assert 2 == on_disk.log.log_end_offset
    assert 2 == on_disk.log.offsets().last_stable_offset


@pytest.mark.parametrize("operation", ["open", "pwrite"])
def test_aborted_records_stay_hidden_when_their_index_cannot_be_written(operation):
    """If the transaction index cannot be written, the log goes offline and hides the aborted records.

    A load then adds the entry from the marker.
    """
    on_disk = LogOnDisk()
    on_disk.log.append(produced(b"aborted", key=b"key", txn=True))
    on_disk.disk.fail(operation, suffix=".txnindex")
    with pytest.raises(OSError, match="Input/output"):
        on_disk.log.append(marker(commit=False), origin=Origin.COORDINATOR)
    assert "transaction index" in on_disk.log.offline_reason
    assert 2 == on_disk.log.offsets().last_stable_offset
    assert [] == committed(on_disk)
    on_disk.kill()
    assert [AbortedSpan(7, 0, 1, 2)] == list(on_disk.log.chain.active.transaction_index)


def test_what_recovery_cut_never_comes_back():
    """Recovery's truncation is synced before the next append."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"), durable=True)
    whole = on_disk.log.segments()[0].size_bytes
    torn = bytes(batch(b"torn", offset=1))[:-1]
    on_disk.log.close()
    path = DIRECTORY / f"{0:020d}.log"
    file = on_disk.disk.open(path)
    file.pwrite(torn, whole)
    file.sync()
    on_disk.kill()
    assert whole == on_disk.disk.size(path)
    on_disk.disk.crash(keep=0)
    assert whole == on_disk.disk.size(path)


def test_truncated_segments_never_come_back():
    """Segments that a follower truncated do not come back after a crash."""
    on_disk = LogOnDisk(internal_segment_bytes=150)
    for number in range(4):
        on_disk.log.append(batch(b"old %d" % number), durable=True)
    on_disk.log.replacer.truncate_to(1)
    on_disk.log.append(batch(b"new 1"), durable=True)
    on_disk.crash(keep=0)
    assert [(0, b"old 0"), (1, b"new 1")] == records_of(on_disk.log)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_batch_whose_index_cannot_be_opened_is_not_kept(suffix):
    """If an index cannot be opened, the append fails and its batch is not kept.

    The next batch gets the same file position and the same offset, even if the index could not be opened during the
    undo either.
    """
    on_disk = LogOnDisk(index_interval_bytes=0)
    on_disk.log.append(batch(b"first"))
    on_disk.log.appender.roll()
    on_disk.log.append(batch(b"second"))
    on_disk.disk.fail("open", number=errno.EMFILE, times=3, suffix=suffix)
    for _ in range(3):
        with pytest.raises(OSError, match="Too many open files"):
            on_disk.log.append(batch(b"refused"))
    on_disk.log.append(batch(b"third"))
    for log in (on_disk.log, on_disk.kill()):
        assert [(0, b"first"), (1, b"second"), (2, b"third")] == records_of(log)


def test_an_unexpected_error_after_the_write_undoes_the_append(monkeypatch):
    """An unexpected error after the write, such as MemoryError, undoes the append."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    on_disk.log.append(batch(b"first"))

    def append(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(TimeIndex, "append", append)
        with pytest.raises(MemoryError):
            on_disk.log.append(batch(b"refused"))
    on_disk.log.append(batch(b"second"))
    assert [(0, b"first"), (1, b"second")] == records_of(on_disk.log)
    assert [1] == [entry.offset for entry in on_disk.log.chain.active.offset_index]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_was_partly_created_is_created_again(suffix):
    """An index that was only partly created is created again, and later rolls work."""
    on_disk = LogOnDisk(index_interval_bytes=0)
    on_disk.log.append(batch(b"a", timestamp=5))
    on_disk.log.appender.roll()
    on_disk.disk.fail("truncate", suffix=f"1{suffix}")
    on_disk.log.append(batch(b"b", timestamp=6))
    with pytest.raises(OSError, match="Input/output"):
        on_disk.log.append(batch(b"c", timestamp=7))
    on_disk.disk.heal()
    for number in range(4):
        on_disk.log.append(batch(b"d", timestamp=8 + number))
    on_disk.log.appender.roll()
    assert [0, 1, 2, 3, 4, 5] == offsets_of(on_disk.log)
    sealed = on_disk.log.chain.segments[1]
    assert (5, 11) == (sealed.offset_index.last_offset, sealed.time_index.last.timestamp)


CUTS = [
    pytest.param(lambda log: log.replacer.truncate_to(Offset(3)), id="in a segment"),
    pytest.param(lambda log: log.replacer.truncate_to(Offset(7)), id="in the active segment"),
    pytest.param(lambda log: log.replacer.truncate_to(Offset(6)), id="to an empty segment"),
    pytest.param(lambda log: log.replacer.truncate_fully_and_start_at(Offset(3)), id="all of it"),
]


def of_four_segments(disk: SimulatedDisk | None = None) -> LogOnDisk:
    on_disk = LogOnDisk(disk=disk, internal_segment_bytes=150)
    for number in range(8):
        on_disk.log.append(batch(b"old %d" % number))
    assert [0, 2, 4, 6] == on_disk.base_offsets()
    return on_disk


@pytest.mark.parametrize("cut", CUTS)
def test_a_truncation_that_fails_takes_the_log_offline(cut):
    """A failed truncation takes the log offline, because later appends would mix with the records to be removed."""
    failed = set()
    for operation, after in product(("rename", "open", "pread", "truncate", "sync_directory"), range(12)):
        on_disk = of_four_segments()
        on_disk.disk.fail(operation, after=after)
        with suppress(OSError):
            cut(on_disk.log)
            continue
        failed.add(operation)
        on_disk.disk.heal()
        with pytest.raises(PartitionOfflineError, match="truncating to offset"):
            on_disk.log.append(batch(b"new"))
        on_disk.kill()
        on_disk.log.append(batch(b"new"))
        offsets = offsets_of(on_disk.log)
        assert list(range(offsets[0], on_disk.log.log_end_offset)) == offsets
    assert "truncate" in failed


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("end", list(End), ids=str)
@pytest.mark.parametrize("flushed", [True, False])
def test_a_truncation_that_a_crash_ends_leaves_no_gap(cut, end, flushed):
    """If a crash interrupts a truncation at any step, the old records that are left have no gap between them.

    The log ends after the last of these records.
    """
    for seed, steps in product(range(3), range(50)):
        disk = MortalDisk(seed=seed)
        on_disk = of_four_segments(disk)
        if flushed:
            on_disk.log.appender.flush()
        checkpoint = on_disk.log.recovery_point
        died = dies(disk, partial(cut, on_disk.log), steps)
        end.of(disk)
        on_disk.log = on_disk.load(clean=False, recovery_point=checkpoint)
        left = records_of(on_disk.log)
        start = left[0][0] if left else 0
        assert [(start + index, b"old %d" % (start + index)) for index in range(len(left))] == left
        assert not left or left[-1][0] + 1 == on_disk.log.log_end_offset
        if not died:
            break
    assert not died


class LookedAtDisk(SimulatedDisk):
    """A disk that calls `look` at each step of a change."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], None] | None = None

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        look, self.look = self.look, None
        if look is not None:
            look()
        super().happens(operation, path, changes=changes)
        self.look = look


def test_aborted_records_stay_hidden_while_their_marker_is_cut_off():
    """While the marker of an abort is being truncated, readers never see the aborted records."""
    disk = LookedAtDisk()
    on_disk, seen = LogOnDisk(disk=disk), []
    on_disk.log.append(produced(b"aborted", key=b"key", txn=True))
    on_disk.log.append(marker(commit=False), origin=Origin.COORDINATOR)
    on_disk.log.append(batch(b"behind", key=b"key", timestamp=NOW))
    disk.look = lambda: seen.append(committed(on_disk))
    on_disk.log.replacer.truncate_to(Offset(1))
    disk.look = None
    assert (0, []) == (on_disk.log.offsets().last_stable_offset, committed(on_disk))
    assert [b"behind"] == seen[0]
    assert [b"aborted"] not in seen


@pytest.mark.parametrize(("operation", "suffix"), [("pwrite", ".log"), ("write_bytes", ".snapshot")])
def test_a_batch_behind_a_gap_that_found_no_room_is_taken_later(operation, suffix):
    """If a batch after a gap does not fit on the disk, the log stays online and accepts the batch later."""
    for go_on in (lambda log: log.append(batch(b"next")), lambda log: log.close()):
        on_disk = LogOnDisk(internal_segment_bytes=100)
        on_disk.log.append(batch(b"first"))
        on_disk.disk.fail(operation, number=errno.ENOSPC, suffix=suffix)
        with pytest.raises(OSError, match="No space left"):
            on_disk.log.appender.append_as_follower(batch(b"behind", offset=50))
        go_on(on_disk.log)
        shown = offsets_of(on_disk.log)
        on_disk.kill()
        assert shown == offsets_of(on_disk.log)
        on_disk.log.appender.append_as_follower(batch(b"behind", offset=on_disk.log.log_end_offset))
        assert len(shown) + 1 == len(offsets_of(on_disk.log))


@pytest.mark.parametrize(
    ("more", "start"),
    [
        pytest.param(batch(b"third", offset=2, epoch=6), 2, id="a batch"),
        pytest.param(
            batch(b"third", offset=2, epoch=5) + batch(b"4th", offset=3, epoch=6), 3, id="two batches"
        ),
    ],
)
def test_epochs_of_batches_that_found_no_room_are_not_noted(more, start):
    """If batches do not fit on the disk, their epochs are written as soon as the follower writes the batches.

    The follower's next attempt may begin at another offset, and then the epochs have other first offsets.
    """
    on_disk = LogOnDisk()
    on_disk.log.appender.append_as_follower(batch(b"first", epoch=4))
    on_disk.log.appender.append_as_follower(batch(b"second", offset=1, epoch=5))

    for _ in range(2):
        on_disk.disk.fail("pwrite", number=errno.ENOSPC, suffix=".log")
        with pytest.raises(OSError, match="No space left"):
            on_disk.log.appender.append_as_follower(more)
        assert ((4, 0), (5, 1)) == on_disk.log.epochs.entries
    on_disk.log.appender.append_as_follower(more)
    for log in (on_disk.log, on_disk.kill()):
        assert ((4, 0), (5, 1), (6, start)) == log.epochs.entries
    assert f"0\n3\n4 0\n5 1\n6 {start}\n".encode() == on_disk.content("leader-epoch-checkpoint")


@pytest.mark.parametrize(("kept_bytes", "kept"), [(99, 1), (100, 2), (250, 3), (299, 3)])
def test_whole_batches_stay_after_a_kill_cuts_an_append(kept_bytes: int, kept: int):
    """If a kill cuts a write of several batches, its complete batches stay, because the caller got no result."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"before"))
    size = on_disk.log.chain.active.size
    on_disk.log.append(sized_batch(100) * 3)
    name = f"{0:020d}.log"
    on_disk.write(name, on_disk.content(name)[: size + kept_bytes])
    log = on_disk.kill()
    assert kept == log.log_end_offset
    assert list(range(kept)) == offsets_of(log)
