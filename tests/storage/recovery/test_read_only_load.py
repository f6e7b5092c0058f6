"""Tests that loading a read-only directory gives the same log and changes no byte."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.doubles.logs import LogOnDisk, filled, offsets_of
from tests.doubles.records import batch


def look(on_disk: LogOnDisk, *, clean: bool, **offsets: int):
    """Load from a read-only view, yield the log, and check that the disk is unchanged."""
    before = on_disk.disk.tree()
    log = on_disk.load(clean=clean, disk=on_disk.disk.read_only_view(), **offsets)
    yield log
    log.close()
    assert before == on_disk.disk.tree()
    yield None


@pytest.mark.parametrize("clean", [True, False])
def test_a_running_log_is_shown(clean):
    """A log that another process writes is shown, even with untrimmed indexes."""
    on_disk = filled(10, internal_segment_bytes=400)
    if clean:
        on_disk.log.close()
    steps = look(on_disk, clean=clean)
    log = next(steps)
    assert list(range(10)) == offsets_of(log)
    assert [7, 8, 9] == [log.offset_for_timestamp(time).offset for time in (70, 75, 90)]
    assert 3 == len(log.segments())
    next(steps)


def test_a_torn_tail_is_not_shown():
    """A torn or damaged end of a log is not shown, and stays on disk."""
    on_disk = filled(10, internal_segment_bytes=400)
    name = f"{8:020d}.log"
    on_disk.write(name, on_disk.content(name)[:-30])
    for clean in (True, False):
        steps = look(on_disk, clean=clean)
        log = next(steps)
        assert (9, list(range(9))) == (log.log_end_offset, offsets_of(log))
        next(steps)


def test_segments_after_damage_are_not_shown():
    """Segments after damage are hidden, and the status has the first hidden offset and the reason."""
    on_disk = filled(10, internal_segment_bytes=400)
    name = f"{4:020d}.log"
    content = on_disk.content(name)
    on_disk.write(name, content[:170] + b"\xff" + content[171:])
    steps = look(on_disk, clean=False)
    log = next(steps)
    assert list(range(5)) == offsets_of(log)
    assert [0, 4] == [segment.base_offset for segment in log.segments()]
    assert re.fullmatch(rf".*{name}: position \d+: .*; nothing from there on is shown", log.status().hidden)
    next(steps)


def test_indexes_that_do_not_fit_are_made_in_memory():
    """Indexes that are missing, torn or of another log are rebuilt in memory."""
    on_disk = filled(10, internal_segment_bytes=400)
    on_disk.log.close()
    on_disk.disk.unlink(Path(f"/data/orders-0/{0:020d}.index"))
    on_disk.write(f"{4:020d}.index", Random(1).randbytes(13))
    on_disk.write(f"{8:020d}.index", b"\0\0\0\1\x7f\0\0\0")
    steps = look(on_disk, clean=True)
    log = next(steps)
    assert [*range(10)] == [log.locate(offset).batch.base_offset for offset in range(10)]
    assert [*range(10)] == [log.offset_for_timestamp(number * 10).offset for number in range(10)]
    next(steps)


def test_empty_directories():
    """A directory without a segment, or with an end before the start, is shown as an empty log."""
    on_disk = LogOnDisk()
    for name in on_disk.names():
        on_disk.disk.unlink(Path("/data/orders-0") / name)
    steps = look(on_disk, clean=True, log_start_offset=5)
    log = next(steps)
    assert (5, 5, []) == (log.log_start_offset, log.log_end_offset, offsets_of(log))
    assert "online" == log.status().state
    next(steps)
    other = filled(10, internal_segment_bytes=400)
    steps = look(other, clean=True, log_start_offset=50, reached=50)
    assert (50, 50) == ((log := next(steps)).log_start_offset, log.log_end_offset)
    next(steps)


def test_lost_epochs_are_found_in_memory():
    """Without an epoch file the epochs come from the batches."""
    on_disk = LogOnDisk()
    for offset in range(3):
        on_disk.log.appender.append_as_follower(batch(b"a", offset=offset, epoch=offset))
    on_disk.disk.unlink(Path("/data/orders-0/leader-epoch-checkpoint"))
    steps = look(on_disk, clean=False)
    assert ((0, 0), (1, 1), (2, 2)) == next(steps).epochs.entries
    next(steps)


def test_only_what_is_replicated_is_shown():
    """While another process owns the directory, readers see records up to the checkpointed high watermark."""
    on_disk = filled(10, internal_segment_bytes=400)
    steps = look(on_disk, clean=False, high_watermark=6)
    log = next(steps)
    assert (6, 10, list(range(6))) == (log.high_watermark, log.log_end_offset, offsets_of(log))
    next(steps)
