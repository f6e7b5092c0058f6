"""Tests of recovery that is interrupted at any step, and of its result if power fails right after it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, offsets_of, records_of
from tests.doubles.mortal_disk import End, MortalDisk, dies
from tests.doubles.records import batch, marker, produced, sized_batch
from tests.storage.recovery.stopped_logs import cut, put, replacement, stopped, sync_all
from topicfs.inspection.check.partition import PartitionCheck
from topicfs.storage.checkpoints.partition_metadata import write_topic_id
from topicfs.storage.producers.append import Origin

pytestmark = pytest.mark.slow

FIRST = f"{0:020d}"
SUFFIXES = (".log", ".index", ".timeindex")
MAX_STEPS = 400


def synced(on_disk: LogOnDisk) -> LogOnDisk:
    sync_all(on_disk.disk)
    return on_disk


def on_mortal_disk(count: int = 12) -> LogOnDisk:
    """Return a closed log of `count` batches, three batches per segment."""
    on_disk = stopped(count, disk=MortalDisk())
    write_topic_id(on_disk.disk, DIRECTORY, "1EvPSKI_SvihSIy3lMKMvg")
    return on_disk


def torn() -> tuple[LogOnDisk, list[int]]:
    """Return a log with a half-written batch in the second segment, and the offsets before this batch."""
    on_disk = on_mortal_disk()
    cut(on_disk, 3, 250)
    return synced(on_disk), [0, 1, 2, 3, 4]


def without_indexes() -> tuple[LogOnDisk, list[int]]:
    on_disk = on_mortal_disk(9)
    for name in on_disk.index_files():
        on_disk.disk.unlink(DIRECTORY / name)
    return synced(on_disk), list(range(9))


def with_garbage_in_indexes() -> tuple[LogOnDisk, list[int]]:
    on_disk = on_mortal_disk(9)
    for name in on_disk.index_files():
        on_disk.write(name, b"\x7f" * 19)
    return synced(on_disk), list(range(9))


def with_a_damaged_transaction_index() -> tuple[LogOnDisk, list[int]]:
    """Return a log whose first segment has an abort and a damaged transaction index."""
    on_disk = LogOnDisk(disk=MortalDisk(), internal_segment_bytes=300)
    on_disk.log.append(produced(b"aborted", txn=True))
    on_disk.log.append(marker(commit=False), origin=Origin.COORDINATOR)
    for number in range(2, 6):
        on_disk.log.append(sized_batch(100, timestamp=number))
    on_disk.log.close()
    write_topic_id(on_disk.disk, DIRECTORY, "1EvPSKI_SvihSIy3lMKMvg")
    on_disk.write(f"{FIRST}.txnindex", b"\x7f" * 19)
    return synced(on_disk), [0, 2, 3, 4, 5]


def compacted() -> tuple[LogOnDisk, list[int]]:
    """Return a log with a finished compaction of two segments; the new files are still `.swap` files."""
    on_disk = on_mortal_disk()
    put(on_disk, replacement(4, 8, base_offset=3), ".swap")
    return synced(on_disk), [0, 1, 2, 4, 8, 9, 10, 11]


def half_compacted() -> tuple[LogOnDisk, list[int]]:
    """Return a log with an unfinished compaction, which loading undoes."""
    on_disk, expected = compacted()
    on_disk.write(f"{3:020d}.log.cleaned", b"")
    return synced(on_disk), list(range(len(expected) + 4))


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize(
    ("state", "recovery_point"),
    [
        (torn, 0),
        (torn, 4),
        (without_indexes, 0),
        (without_indexes, 9),
        (with_garbage_in_indexes, 0),
        (with_a_damaged_transaction_index, 0),
        (with_a_damaged_transaction_index, 6),
        (compacted, 0),
        (compacted, 4),
        (compacted, 12),
        (half_compacted, 0),
        (half_compacted, 12),
    ],
)
def test_recovery_that_was_ended_anywhere_is_done_by_the_next(
    state: Callable[[], tuple[LogOnDisk, list[int]]], recovery_point: int, end: End
) -> None:
    """If recovery is killed at any step, the next start finds the same records, with valid indexes."""
    made, expected = state()
    for steps in range(MAX_STEPS):
        if not ended_and_done_again(made, expected, recovery_point, end, steps, seed=steps):
            assert steps > 5
            return
    raise AssertionError(f"not complete after {MAX_STEPS} steps")


@pytest.mark.parametrize("seed", range(30))
def test_a_segment_below_the_recovery_point_is_not_trusted_half_done(seed: int) -> None:
    """Before recovery changes a segment, it records on disk that the segment must be rebuilt."""
    made, expected = with_a_damaged_transaction_index()
    for steps in range(1, 12):
        ended_and_done_again(made, expected, 6, End.POWER_LOSS, steps, seed=seed)


def ended_and_done_again(
    made: LogOnDisk, expected: list[int], recovery_point: int, end: End, steps: int, *, seed: int
) -> bool:
    """Interrupt a recovery after `steps`, and check the next recovery. Return whether the first was interrupted."""
    on_disk = copy(made)
    on_disk.disk = deepcopy(made.disk)
    on_disk.disk._random.seed(seed)
    ended = dies(on_disk.disk, lambda: on_disk.kill(recovery_point=recovery_point), steps)
    end.of(on_disk.disk)
    on_disk.kill(recovery_point=recovery_point)
    assert expected == offsets_of(on_disk.log), f"after {steps} steps"
    assert on_disk.log.append(sized_batch(100, timestamp=500)).base_offset == expected[-1] + 1
    on_disk.log.close()
    assert [] == findings(on_disk), f"after {steps} steps"
    return ended


def findings(on_disk: LogOnDisk) -> list[object]:
    """Return what `topicfs check` reports for the partition."""
    view = on_disk.disk.read_only_view()
    return list(PartitionCheck(DIRECTORY, view, in_use=False, clean=True).findings(lambda _: None))


def test_segments_that_recovery_removed_never_come_back_behind_a_recovery_point() -> None:
    """Recovery syncs its own renames, because a later flush may not sync the directory."""
    on_disk = stopped(9)
    cut(on_disk, 0, 299)
    synced(on_disk)
    on_disk.kill(recovery_point=1)
    on_disk.log.append(batch(b"new"), durable=True)
    on_disk.crash(keep=0.0, recovery_point=1)
    assert [0, 1, 2] == offsets_of(on_disk.log)
    assert b"new" == records_of(on_disk.log)[-1][1]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("clean", [False, True])
def test_an_index_that_was_rebuilt_below_the_recovery_point_is_whole_after_a_power_loss(
    seed: int, clean: bool
) -> None:
    """Recovery syncs an index that it rebuilds below the recovery point, as no later recovery checks it."""
    on_disk = LogOnDisk(disk=MortalDisk(seed=seed), internal_segment_bytes=30_000, index_interval_bytes=0)
    for number in range(300):
        on_disk.log.append(sized_batch(100, timestamp=number))
    on_disk.log.appender.roll()
    on_disk.log.append(sized_batch(100, timestamp=300))
    on_disk.log.close()
    indexes = {name: on_disk.content(name) for name in (f"{FIRST}.index", f"{FIRST}.timeindex")}
    for name in indexes:
        on_disk.disk.unlink(DIRECTORY / name)
    synced(on_disk)
    on_disk.log = on_disk.load(clean=clean, recovery_point=301)
    on_disk.disk.sync_directory(DIRECTORY)
    on_disk.crash(keep=0.5, recovery_point=301)
    assert indexes == {name: on_disk.content(name) for name in indexes}
