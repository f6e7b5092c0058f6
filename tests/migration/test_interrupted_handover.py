"""Handover and takeover, interrupted at every step."""

from __future__ import annotations

import copy
from contextlib import suppress

import pytest

from tests.doubles import handover
from tests.doubles.mortal_disk import End
from topicfs.storage.checkpoints.offset_checkpoint import read_lines
from topicfs.storage.disk import names
from topicfs.storage.errors import StorageError
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.slow


def test_placing_continues_after_any_interruption() -> None:
    """After a kill or power loss at any step, even with a broker start in between, a repeated run places everything."""
    disk, records = handover.prepared_disk(handover.DATA)
    handover.given(disk).prepare(handover.OwnCluster(disk))
    disk.watched = handover.LOG_DIR

    def check(disk: handover.StoppingDisk) -> None:
        assert records == handover.contents(disk, handover.LOG_DIR)
        assert records == handover.contents(disk, handover.DATA)

    handover.interrupt_everywhere(disk, lambda disk: handover.given(disk).place(), check, every=2)


def test_a_takeover_continues_after_any_interruption() -> None:
    """After a kill or power loss at any step a repeated takeover completes; it only reads the broker's directory."""
    disk, records = handover.prepared_disk(handover.LOG_DIR)
    before = handover.below(disk, handover.LOG_DIR)
    disk.watched = handover.DATA

    def check(disk: handover.StoppingDisk) -> None:
        assert records == handover.contents(disk, handover.DATA)
        assert before == handover.below(disk, handover.LOG_DIR)

    # Other tests interrupt the loading and recovery that follow.
    handover.interrupt_everywhere(disk, handover.taken, check, every=5)


@pytest.mark.parametrize("end", End, ids=str)
def test_the_broker_never_has_our_files_without_our_offsets(end: End) -> None:
    """Wherever a handover is interrupted, a placed log has its log start and recovery point in the checkpoints.

    Without these offsets a starting broker would serve records below the log start, and recover valid logs.
    """
    base, _ = handover.prepared_disk(handover.DATA)
    handover.given(base).prepare(handover.OwnCluster(base))
    base.watched = handover.LOG_DIR
    seen = set()
    partition = TopicPartition("trimmed", 0)
    log = handover.LOG_DIR / "trimmed-0" / f"{0:020d}.log"
    for number in range(400):
        disk = copy.deepcopy(base)
        disk.changes_left = number
        with suppress(OSError, StorageError):
            handover.given(disk).place()
        ended = disk.changes_left == 0
        disk.changes_left = None
        end.of(disk)
        placed = disk.exists(log) and disk.size(log) > 0
        seen.add(placed)
        if placed:
            lines = read_lines(disk, handover.LOG_DIR, partition)
            assert (7, 15) == (lines[names.LOG_START_OFFSETS], lines[names.RECOVERY_POINTS]), number
        if not ended:
            break
    assert {False, True} == seen
