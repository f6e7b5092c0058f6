"""Tests that an interrupted compaction is undone if its files are incomplete, and otherwise completed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.logs import LogOnDisk, offsets_of, records_of
from tests.storage.recovery.stopped_logs import SEGMENT_SUFFIXES, put, replacement, stopped
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileName, SegmentFileState
from topicfs.storage.model import Offset
from topicfs.storage.recovery.temporary_files import indexes_without_log, replaced, sort_temporary_files

BASES = (0, 3, 6)


def compacted() -> tuple[LogOnDisk, dict[str, bytes]]:
    """Return a closed log with segments 0, 3 and 6, and the files of a segment that replaces the first two."""
    return stopped(9), replacement(1, 2, 5)


def remove_old(on_disk: LogOnDisk, *base_offsets: int) -> None:
    for base_offset in base_offsets:
        for suffix in SEGMENT_SUFFIXES:
            on_disk.disk.unlink(Path(f"/data/orders-0/{base_offset:020d}{suffix}"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("swapped", [(), (".log",), (".log", ".index")])
def test_an_unfinished_compaction_is_undone(clean, swapped):
    """Row 41: a `.cleaned` file is deleted, and so are all `.swap` files at or above its base offset."""
    on_disk, new = compacted()
    put(on_disk, new, ".cleaned")
    put(on_disk, new, ".swap", only=swapped)
    on_disk.log = on_disk.load(clean=clean)
    assert list(range(9)) == offsets_of(on_disk.log)
    assert [] == on_disk.temporary_files()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", [(), (0,), (0, 3)])
def test_a_finished_compaction_is_completed(clean, gone):
    """Row 42: if a finished compaction has left only `.swap` files, the new segment replaces the old segments.

    Some of the old segments may be removed already.
    """
    on_disk, new = compacted()
    put(on_disk, new, ".swap")
    remove_old(on_disk, *gone)
    on_disk.log = on_disk.load(clean=clean)
    assert [1, 2, 5, 6, 7, 8] == offsets_of(on_disk.log)
    assert [0, 6] == on_disk.base_offsets()
    assert [] == on_disk.temporary_files()
    assert list(records_of(on_disk.log)) == list(records_of(on_disk.reopen()))


def test_a_compaction_with_one_file_renamed_already():
    """Row 42: if the `.log` file already has its final name, its `.swap` indexes get their final names as well."""
    on_disk, new = compacted()
    remove_old(on_disk, 0, 3)
    put(on_disk, new, "", only=(".log",))
    put(on_disk, new, ".swap", only=(".index", ".timeindex"))
    on_disk.log = on_disk.load(clean=True)
    assert [1, 2, 5, 6, 7, 8] == offsets_of(on_disk.log)
    assert new[f"{0:020d}.timeindex"] == on_disk.content(f"{0:020d}.timeindex")
    assert [] == on_disk.temporary_files()


def test_a_finished_compaction_is_shown_without_touching_it():
    """On a read-only disk a `.swap` segment is read without being renamed."""
    on_disk, new = compacted()
    put(on_disk, new, ".swap")
    on_disk.write(f"{0:020d}.log.deleted", b"old")
    before = on_disk.disk.tree()
    log = on_disk.load(clean=True, disk=on_disk.disk.read_only_view())
    assert [1, 2, 5, 6, 7, 8] == offsets_of(log)
    assert before == on_disk.disk.tree()


@pytest.mark.parametrize("recovery_point", range(10))
def test_a_snapshot_goes_with_the_segment_it_stood_beside(recovery_point):
    """When an old segment is replaced, its snapshot is deleted as well.

    The log then reads its producers from an older snapshot and the batches after it.
    """
    on_disk, _ = compacted()
    put(on_disk, replacement(3, 5, base_offset=3), ".swap")
    assert f"{3:020d}.snapshot" in on_disk.names()
    on_disk.log = on_disk.load(clean=False, recovery_point=recovery_point)
    assert [0, 1, 2, 3, 5, 6, 7, 8] == offsets_of(on_disk.log)
    assert [] == on_disk.temporary_files()


def test_an_old_index_is_not_taken_for_a_new_segments():
    """On a read-only disk the old segment's `.index` is not used for the new segment."""
    on_disk, new = compacted()
    put(on_disk, new, ".swap")
    log = on_disk.load(clean=True, disk=on_disk.disk.read_only_view())
    assert [2, 5, 6, 7, 8] == offsets_of(log, 2)
    assert [5, 6, 7, 8] == offsets_of(log, 3)


def test_sorting_by_names():
    """`.swap` files below all `.cleaned` files are complete.

    The `.swap` files from the lowest `.cleaned` file on are deleted, and so are the `.cleaned` files.
    """
    names = [
        "00000000000000000000.log.swap",
        "00000000000000000005.log.swap",
        "00000000000000000005.index.cleaned",
    ]
    found = sort_temporary_files(
        [*names, "00000000000000000001.log.deleted", "notes.deleted", "00000000000000000009.log"]
    )
    assert (SegmentFileName(Offset(0), SegmentFileKind.LOG, SegmentFileState.SWAP),) == found.swaps
    assert {*names[1:], "00000000000000000001.log.deleted", "notes.deleted"} == set(found.remove)


def test_files_that_new_segments_replace():
    """`replaced` returns the segment files within the range of offsets, except temporary files."""
    names = [f"{offset:020d}.{kind}" for offset in (0, 5, 9) for kind in ("log", "snapshot", "txnindex")]
    assert [names[3], names[4], names[5]] == replaced(
        [*names, f"{5:020d}.log.swap", "leader-epoch-checkpoint"], Offset(1), Offset(9)
    )


def test_temporary_files_by_their_names():
    """`indexes_without_log` returns the indexes whose `.log` is missing."""
    names = [
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000004.index",
        "x.index",
    ]
    assert ["00000000000000000004.index"] == indexes_without_log([*names, "00000000000000000004.snapshot"])
