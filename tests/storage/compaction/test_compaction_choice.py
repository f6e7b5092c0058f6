"""Tests, without files, of which log is cleaned, up to which offset, and which segments are merged."""

from __future__ import annotations

import pytest

from topicfs.storage.compaction import selection
from topicfs.storage.model import Offset, Timestamp

NOW = Timestamp(1_000_000)


def segment(base, size=100, time=0, first=None):
    return selection.CleanableSegment(
        Offset(base), size, Timestamp(time), None if first is None else Timestamp(first)
    )


PARAMS = selection.CleaningParams(
    segments=[segment(0), segment(10), segment(20), segment(30)],
    log_start_offset=Offset(0),
    log_end_offset=Offset(35),
    last_stable_offset=Offset(35),
    checkpoint=None,
    min_lag_ms=0,
    max_lag_ms=2**63 - 1,
    min_dirty_ratio=0.5,
    now=NOW,
)


def planned(**changes):
    return selection.plan(PARAMS._replace(**changes))


def test_the_active_segment_is_never_cleaned():
    """Row 120: a first pass cleans all segments below the active one."""
    first = planned()
    assert (0, 30, 300, True) == (
        first.first_dirty_offset,
        first.end_offset,
        first.cleanable_bytes,
        first.due,
    )


def test_the_checkpoint_divides_clean_from_dirty():
    """The cleanable ratio is the dirty bytes divided by the bytes of all inactive segments."""
    second = planned(checkpoint=Offset(20))
    assert (200, 100) == (second.clean_bytes, second.cleanable_bytes)
    assert second.cleanable_ratio == pytest.approx(1 / 3)
    assert not second.due


def test_the_ratio_must_be_above_the_setting():
    """No pass is due if the ratio is exactly min.cleanable.dirty.ratio."""
    half = planned(checkpoint=Offset(10), segments=[segment(0), segment(10), segment(20)])
    assert 0.5 == half.cleanable_ratio
    assert not half.due


def test_overdue_records_make_a_pass_due_whatever_the_ratio():
    """A pass is due when the first batch of the oldest dirty segment is older than max.compaction.lag.ms."""
    segments = [segment(0, 9000), segment(20, first=NOW - 51), segment(30)]
    late = {"checkpoint": Offset(20), "segments": segments}
    assert planned(**late, max_lag_ms=50).due
    assert not planned(**late, max_lag_ms=51).due


@pytest.mark.parametrize("checkpoint", [-1, 3, 36])
def test_a_bad_checkpoint_is_replaced_by_the_log_start(checkpoint):
    """Row 119: a checkpoint outside of the log, as after a truncation or a deletion, is replaced by the log start."""
    reset = planned(checkpoint=Offset(checkpoint), segments=PARAMS.segments[1:], log_start_offset=Offset(10))
    assert 10 == reset.first_dirty_offset


def test_young_segments_wait():
    """Row 120: cleaning ends before the first segment with a record younger than min.compaction.lag.ms."""
    segments = [segment(0, time=1), segment(10, time=NOW - 5), segment(20, time=1), segment(30)]
    assert 10 == planned(segments=segments, min_lag_ms=10).end_offset
    assert 30 == planned(segments=segments, min_lag_ms=5).end_offset


def test_a_young_segment_waits_though_the_log_starts_inside_it():
    """A young segment is not cleaned, even if the log starts inside this segment."""
    segments = [segment(0, time=95), segment(10, time=0), segment(20)]
    moved = {"segments": segments, "log_start_offset": 5, "now": 100}
    assert not planned(**moved, min_lag_ms=10).due
    assert planned(**moved, min_lag_ms=5).due


def test_an_overdue_segment_is_due_though_the_log_starts_inside_it():
    """The lag of a segment counts from the time of its first batch, even if the log starts inside this segment."""
    segments = [segment(0, first=50), segment(10, first=95), segment(20)]
    moved = {"segments": segments, "log_start_offset": 5, "now": 100, "min_dirty_ratio": 1.0}
    assert planned(**moved, max_lag_ms=49).due
    assert not planned(**moved, max_lag_ms=50).due


def test_undecided_transactions_wait():
    """Row 120: the segment with the last stable offset is not cleaned."""
    assert 20 == planned(last_stable_offset=Offset(25)).end_offset


def test_nothing_dirty_is_never_due():
    """Without dirty records no pass is due, whatever the other settings are."""
    nothing = planned(checkpoint=Offset(30), min_dirty_ratio=0.0)
    assert (0, False) == (nothing.cleanable_bytes, nothing.due)


def grouped(rows, end=1000, segment_bytes=100, index_bytes=50):
    segments = [selection.GroupingSegment(Offset(base), *sizes) for base, *sizes in rows]
    return [
        [s.base_offset for s in members]
        for members in selection.group(
            segments, segment_bytes=segment_bytes, index_bytes=index_bytes, end_offset=Offset(end)
        )
    ]


def test_neighbors_merge_up_to_the_segment_size():
    """Row 114: adjacent segments are merged if their sizes add up to exactly the segment size."""
    assert [[0, 10], [20]] == grouped([(0, 50, 0, 0), (10, 50, 0, 0), (20, 1, 0, 0)])


@pytest.mark.parametrize("column", [2, 3])
def test_index_sizes_bound_a_group(column):
    """Row 114: the sizes of the offset index and of the time index limit a group of segments."""
    row = [0, 1, 0, 0]
    row[column] = 26
    second = [10, *row[1:]]
    assert [[0], [10]] == grouped([row, second])


def test_a_segment_larger_than_the_limit_stays_alone():
    """A segment larger than the limit is rewritten alone."""
    assert [[0], [10]] == grouped([(0, 500, 0, 0), (10, 1, 0, 0)])


def test_offsets_of_a_group_fit_one_index():
    """Row 114: the offsets of a group span at most 2^31.

    The end of a segment's offsets is taken from the next segment's base offset.
    """
    far = 2**31
    rows = [(0, 1, 0, 0), (10, 1, 0, 0)]
    assert [[0, 10]] == grouped(rows, end=far)
    assert [[0], [10]] == grouped(rows, end=far + 1)


def test_empty_segments_are_grouped_too():
    """Empty segments that an earlier pass left are merged into a group."""
    assert [[0, 10, 20]] == grouped([(0, 0, 0, 0), (10, 0, 0, 0), (20, 99, 8, 12)])
