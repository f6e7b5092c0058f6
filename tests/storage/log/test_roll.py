"""When a segment is closed: the decision alone, as arithmetic."""

from __future__ import annotations

from random import Random

import pytest

from storage.log.roll import RollParameters, RollReason, draw_jitter, roll_reason, waited_ms

NOTHING_DUE = RollParameters(
    size_bytes=500,
    base_offset=100,
    first_timestamp=10_000,
    created_ms=0,
    index_full=False,
    max_segment_bytes=1000,
    max_wait_ms=60_000,
    append_bytes=500,
    append_last_offset=150,
    append_max_timestamp=20_000,
    now=1_000_000,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"append_bytes": 501}, RollReason.SIZE),
        ({"size_bytes": 0, "append_bytes": 1000}, None),
        ({"append_max_timestamp": 70_000}, None),
        ({"append_max_timestamp": 70_001}, RollReason.TIME),
        ({"append_max_timestamp": 70_001, "size_bytes": 0}, None),
        ({"first_timestamp": -1, "now": 60_000}, None),
        ({"first_timestamp": -1, "now": 60_001}, RollReason.TIME),
        ({"index_full": True}, RollReason.INDEX_FULL),
        ({"append_last_offset": 100 + 2**31 - 1}, None),
        ({"append_last_offset": 100 + 2**31}, RollReason.OFFSET_RANGE),
        ({"append_last_offset": 99}, RollReason.OFFSET_RANGE),
    ],
)
def test_each_reason_at_its_limit(changes, expected):
    """One past the limit rolls, the limit itself does not; time never rolls an empty segment."""
    assert expected is roll_reason(NOTHING_DUE._replace(**changes))


def test_waiting_is_measured_in_record_time():
    """From the first batch's timestamp where it has one, else from the segment's creation."""
    assert 10_000 == waited_ms(NOTHING_DUE)
    assert 1_000_000 == waited_ms(NOTHING_DUE._replace(first_timestamp=-1))


def test_jitter_lies_below_both_limits():
    """In [0, min(jitter, segment.ms)); none where either is zero."""
    draws = {draw_jitter(segment_jitter_ms=5, segment_ms=1000, random=Random(seed)) for seed in range(100)}
    assert {0, 1, 2, 3, 4} == draws
    assert 0 == draw_jitter(segment_jitter_ms=0, segment_ms=1000, random=Random(1))
    assert draw_jitter(segment_jitter_ms=1000, segment_ms=3, random=Random(1)) < 3
