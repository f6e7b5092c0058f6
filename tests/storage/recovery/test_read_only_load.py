"""Tests that loading a read-only directory gives the same log and changes no byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests.doubles.logs import DIRECTORY, LogOnDisk, filled, offsets_of
from tests.storage.recovery.stopped_logs import cut, log_file, of_epochs, overwrite, stopped
from topicfs.storage.disk.names import LEADER_EPOCHS
from topicfs.storage.log.log import Log


@contextmanager
def shown(on_disk: LogOnDisk, *, clean: bool, **offsets: int) -> Iterator[Log]:
    """Load the log from a read-only view, and check in the end that the disk is unchanged."""
    before = on_disk.disk.tree()
    log = on_disk.load(clean=clean, disk=on_disk.disk.read_only_view(), **offsets)
    yield log
    log.close()
    assert before == on_disk.disk.tree()


@pytest.mark.parametrize("clean", [True, False])
def test_a_running_log_is_shown(clean):
    """A log that another process writes is shown, even with untrimmed indexes."""
    on_disk = filled(10, internal_segment_bytes=400)
    if clean:
        on_disk.log.close()
    with shown(on_disk, clean=clean) as log:
        assert list(range(10)) == offsets_of(log)
        assert [7, 8, 9] == [log.offset_for_timestamp(time).offset for time in (70, 75, 90)]
        assert 3 == len(log.segments())


def test_a_torn_tail_is_not_shown():
    """A torn or damaged end of a log is not shown, and stays on disk."""
    on_disk = filled(10, internal_segment_bytes=400)
    cut(on_disk, 8, -30)
    for clean in (True, False):
        with shown(on_disk, clean=clean) as log:
            assert (9, list(range(9))) == (log.log_end_offset, offsets_of(log))


def test_segments_after_damage_are_not_shown():
    """Segments after damage are hidden, and the status has the first hidden offset and the reason."""
    on_disk = filled(10, internal_segment_bytes=400)
    overwrite(on_disk, 4, 170, b"\xff")
    with shown(on_disk, clean=False) as log:
        assert list(range(5)) == offsets_of(log)
        assert [0, 4] == [segment.base_offset for segment in log.segments()]
        assert re.fullmatch(
            rf".*{log_file(4)}: position \d+: .*; nothing from there on is shown", log.status().hidden
        )


def test_indexes_that_do_not_fit_are_made_in_memory():
    """Indexes that are missing, torn or of another log are rebuilt in memory."""
    on_disk = stopped(10, internal_segment_bytes=400)
    on_disk.disk.unlink(DIRECTORY / f"{0:020d}.index")
    on_disk.write(f"{4:020d}.index", Random(1).randbytes(13))
    on_disk.write(f"{8:020d}.index", b"\0\0\0\1\x7f\0\0\0")
    with shown(on_disk, clean=True) as log:
        assert [*range(10)] == [log.locate(offset).batch.base_offset for offset in range(10)]
        assert [*range(10)] == [log.offset_for_timestamp(number * 10).offset for number in range(10)]


def test_empty_directories():
    """A directory without a segment, or with an end before the start, is shown as an empty log."""
    on_disk = LogOnDisk()
    for name in on_disk.names():
        on_disk.disk.unlink(DIRECTORY / name)
    with shown(on_disk, clean=True, log_start_offset=5) as log:
        assert (5, 5, []) == (log.log_start_offset, log.log_end_offset, offsets_of(log))
        assert "online" == log.status().state
    other = filled(10, internal_segment_bytes=400)
    with shown(other, clean=True, log_start_offset=50, reached=50) as log:
        assert (50, 50) == (log.log_start_offset, log.log_end_offset)


def test_lost_epochs_are_found_in_memory():
    """Without an epoch file the epochs come from the batches."""
    on_disk = of_epochs({0: 0, 1: 1, 2: 2})
    on_disk.disk.unlink(DIRECTORY / LEADER_EPOCHS)
    with shown(on_disk, clean=False) as log:
        assert ((0, 0), (1, 1), (2, 2)) == log.epochs.entries


def test_only_what_is_replicated_is_shown():
    """While another process owns the directory, readers see records up to the checkpointed high watermark."""
    on_disk = filled(10, internal_segment_bytes=400)
    with shown(on_disk, clean=False, high_watermark=6) as log:
        assert (6, 10, list(range(6))) == (log.high_watermark, log.log_end_offset, offsets_of(log))
