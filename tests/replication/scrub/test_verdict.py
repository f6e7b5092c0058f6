"""Tests of finding the sound batches in a buffer."""

from __future__ import annotations

import pytest

from tests.doubles.records import batch
from topicfs.replication.scrub.verdict import OFFSETS, Bounds, judge, judge_first
from topicfs.storage.checkpoints.leader_epochs import EpochEntry
from topicfs.storage.codec.batch import assign_offsets
from topicfs.storage.model import Offset

EPOCHS = (EpochEntry(0, Offset(0)), EpochEntry(3, Offset(4)))


def log(*places: tuple[int, int], values: tuple[bytes, ...] = (b"a", b"b")) -> bytearray:
    """Return two-record batches with the given base offsets and leader epochs."""
    data = bytearray()
    for base_offset, epoch in places:
        one = bytearray(batch(*values))
        assign_offsets(one, 0, base_offset=base_offset, leader_epoch=epoch)
        data += one
    return data


SIZE = len(log((0, 0)))
BOUNDS = Bounds(0, 100, EPOCHS)


def test_batches_in_a_row_are_sound():
    """Consecutive batches are sound up to the offset where they end."""
    verdict = judge(log((0, 0), (2, 0), (4, 3)), BOUNDS, whole=True)
    assert (3, 3 * SIZE, 6, None) == (verdict.sound, verdict.stop, verdict.end_offset, verdict.cause)
    assert verdict.gapless


def test_a_wrong_checksum_ends_what_is_sound():
    """Only the batches before a wrong checksum are sound."""
    data = log((0, 0), (2, 0))
    data[-1] ^= 1
    verdict = judge(data, BOUNDS, whole=True)
    assert (1, SIZE, 2) == (verdict.sound, verdict.stop, verdict.end_offset)
    assert verdict.cause is not None
    assert "checksum" in verdict.cause


def test_the_first_of_two_contradictory_batches_is_not_sound():
    """No checksum covers the base offset, so the first of two batches that contradict each other is not sound."""
    for places in (((0, 0), (9, 3), (4, 3)), ((0, 0), (2, 0), (1, 0))):
        verdict = judge(log(*places), BOUNDS, whole=True)
        assert (1, OFFSETS) == (verdict.sound, verdict.cause)


def test_an_offset_outside_the_segment_is_damage():
    """A batch with an offset before or after the offsets of its segment is damaged."""
    assert 0 == judge(log((99, 3)), BOUNDS, whole=True).sound
    assert 0 == judge(log((0, 0)), Bounds(1, 100, ()), whole=True).sound
    assert 1 == judge(log((98, 3)), BOUNDS, whole=True).sound


def test_a_batch_of_another_epoch_is_damaged():
    """The leader epoch checkpoint shows which epoch wrote an offset. Offsets before its first entry are not checked."""
    verdict = judge(log((0, 0), (2, 1)), BOUNDS, whole=True)
    assert 1 == verdict.sound
    assert verdict.cause is not None
    assert "leader epoch is 1" in verdict.cause
    assert 2 == judge(log((0, 0), (2, 1)), Bounds(0, 100, ()), whole=True).sound
    assert 1 == judge(log((0, 7)), Bounds(0, 100, (EpochEntry(8, Offset(50)),)), whole=True).sound


def test_a_gap_is_no_damage_but_it_is_reported():
    """A gap is reported: compaction may have left it, or another replica may have its records."""
    verdict = judge(log((0, 0), (4, 3)), BOUNDS, whole=True)
    assert (2, None, False) == (verdict.sound, verdict.cause, verdict.gapless)


def test_a_batch_that_is_cut_off_is_damage_only_where_it_must_be_whole():
    """A cut batch is damage only in a whole segment, because a window may end within a batch."""
    data = log((0, 0), (2, 0))[:-1]
    assert (1, None) == judge(data, BOUNDS, whole=False)[1:5:3]
    cut = judge(data, BOUNDS, whole=True)
    assert 1 == cut.sound
    assert cut.cause is not None


@pytest.mark.parametrize("data", [b"", b"\0" * 70, b"\xff" * 70, b"x" * 5])
def test_no_batch_is_sound_in_anything_else(data):
    """Arbitrary bytes contain no sound batch."""
    assert 0 == judge(data, BOUNDS, whole=True).sound
    header, cause = judge_first(data, BOUNDS)
    assert header is None
    assert cause


def test_one_batch_is_judged_by_itself():
    """A single batch is judged without the batches after it."""
    header, cause = judge_first(log((2, 0), (0, 0)), BOUNDS)
    assert header is not None
    assert (2, 3, "") == (header.base_offset, header.last_offset, cause)
    for places in ((99, 3), (2, 3)):
        header, cause = judge_first(log(places), BOUNDS)
        assert header is None
        assert cause
