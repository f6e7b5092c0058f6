"""Tests of which segments retention deletes: by log start offset, size and age."""

from __future__ import annotations

import logging

import pytest

from tests.doubles.logs import filled
from topicfs.storage import retention
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.log.life import Role
from topicfs.storage.model import Offset, SegmentInfo, Timestamp

NOW = Timestamp(1_700_000_000_000)
NOTHING = retention.Decision((), roll_first=False)


def segments_of(*sizes: int, records: int = 5, ages_ms: tuple[int, ...] = ()) -> list[SegmentInfo]:
    """Return adjacent segments of the given sizes. The last segment is active.

    A segment has `records` offsets, or no offset if its size is 0.
    """
    built = []
    offset = 0
    for number, size in enumerate(sizes):
        end = offset + (records if size else 0)
        age = ages_ms[number] if ages_ms else 0
        built.append(
            SegmentInfo(
                Offset(offset),
                Offset(end),
                size,
                Timestamp(NOW - age),
                number == len(sizes) - 1,
                (f"{offset}.log",),
            )
        )
        offset = end
    return built


def facts_of(
    segments: list[SegmentInfo], *, log_start_offset: int = 0, high_watermark: int | None = None
) -> retention.LogFacts:
    end = segments[-1].end_offset
    return retention.LogFacts(
        segments, Offset(log_start_offset), end if high_watermark is None else Offset(high_watermark)
    )


@pytest.mark.parametrize(
    ("log_start_offset", "left"), [(0, 3), (1, 3), (4, 3), (5, 2), (6, 2), (9, 2), (10, 1), (12, 1), (15, 1)]
)
@pytest.mark.parametrize("policy", [("delete",), ("compact",), ("compact", "delete"), ()])
def test_log_start_offset_releases_segments(
    log_start_offset: int, left: int, policy: tuple[str, ...]
) -> None:
    """Row 72: segments completely before the log start are deleted under each policy, except the active segment."""
    facts = facts_of(segments_of(100, 100, 100), log_start_offset=log_start_offset)
    decision = retention.decide_retention(facts, TopicConfig(cleanup_policy=policy, retention_ms=-1), NOW)
    assert left == 3 - decision.removed_segments
    assert not decision.roll_first


@pytest.mark.parametrize(
    ("retention_bytes", "gone"), [(-1, 0), (0, 3), (1, 2), (100, 2), (101, 1), (200, 1), (201, 0), (1000, 0)]
)
def test_size_never_goes_below_the_limit(retention_bytes: int, gone: int) -> None:
    """Row 71: a segment is deleted only if the other segments still have retention.bytes."""
    config = TopicConfig(retention_bytes=retention_bytes, retention_ms=-1)
    decision = retention.decide_retention(facts_of(segments_of(100, 100, 100)), config, NOW)
    assert gone == decision.removed_segments
    assert [retention.Reason.SIZE] * bool(gone) == [removal.reason for removal in decision.removals]


def test_size_stops_at_the_first_that_stays() -> None:
    """If the oldest segment is large and stays, the small segments after it stay as well."""
    config = TopicConfig(retention_bytes=150, retention_ms=-1)
    assert NOTHING == retention.decide_retention(facts_of(segments_of(200, 10, 100)), config, NOW)


def test_age_must_exceed_the_limit() -> None:
    """A segment whose age is exactly retention.ms stays. A segment one millisecond older is deleted."""
    config = TopicConfig(retention_ms=1000)
    facts = facts_of(segments_of(100, 100, 100, ages_ms=(1001, 1000, 0)))
    assert retention.decide_retention(facts, config, NOW) == retention.Decision(
        (retention.PlannedRemoval(1, retention.Reason.AGE),), roll_first=False
    )


def test_age_stops_at_the_first_that_stays() -> None:
    """An old segment after a young one stays, because segments are only deleted from the start of the log."""
    facts = facts_of(segments_of(100, 100, 100, ages_ms=(0, 5000, 0)))
    assert NOTHING == retention.decide_retention(facts, TopicConfig(retention_ms=1000), NOW)


def test_everything_expired_leaves_an_empty_segment() -> None:
    """Row 70: if all segments are due, the log rolls first. The new empty segment is never deleted."""
    config = TopicConfig(retention_ms=1000)
    everything = facts_of(segments_of(100, 100, ages_ms=(5000, 5000)))
    assert retention.decide_retention(everything, config, NOW) == retention.Decision(
        (retention.PlannedRemoval(2, retention.Reason.AGE),), roll_first=True
    )
    rolled = facts_of(segments_of(100, 100, 0, ages_ms=(5000, 5000, 5000)))
    assert retention.decide_retention(rolled, config, NOW) == retention.Decision(
        (retention.PlannedRemoval(2, retention.Reason.AGE),), roll_first=False
    )
    empty = facts_of(segments_of(0, ages_ms=(5000,)))
    assert NOTHING == retention.decide_retention(empty, config, NOW)


@pytest.mark.parametrize(("high_watermark", "gone"), [(0, 0), (4, 0), (5, 1), (9, 1), (10, 2), (15, 3)])
def test_high_watermark_bounds_every_rule(high_watermark: int, gone: int) -> None:
    """Row 73: a segment that ends above the high watermark stays."""
    facts = facts_of(segments_of(100, 100, 100, ages_ms=(5000,) * 3), high_watermark=high_watermark)
    for config in (TopicConfig(retention_ms=1000), TopicConfig(retention_ms=-1, retention_bytes=0)):
        assert gone == retention.decide_retention(facts, config, NOW).removed_segments


def test_rules_follow_each_other() -> None:
    """Segments are chosen by the log start first, then by size, then by age."""
    facts = facts_of(segments_of(10, 90, 100, 100, ages_ms=(9000, 9000, 9000, 0)), log_start_offset=5)
    config = TopicConfig(retention_bytes=200, retention_ms=1000)
    assert retention.decide_retention(facts, config, NOW).removals == (
        retention.PlannedRemoval(1, retention.Reason.LOG_START),
        retention.PlannedRemoval(1, retention.Reason.SIZE),
        retention.PlannedRemoval(1, retention.Reason.AGE),
    )


@pytest.mark.parametrize("policy", [("compact",), ()])
def test_without_delete_neither_size_nor_age_counts(policy: tuple[str, ...]) -> None:
    """If the policy lacks `delete`, segments above the log start stay."""
    facts = facts_of(segments_of(100, 100, ages_ms=(5000, 5000)))
    config = TopicConfig(cleanup_policy=policy, retention_ms=0, retention_bytes=0)
    assert NOTHING == retention.decide_retention(facts, config, NOW)


def test_decision_is_carried_out_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """If all segments are due, retention first rolls the log. It then deletes segments, one reason after the other."""
    log = filled(9, retention_bytes=450, retention_ms=1000).log
    with caplog.at_level(logging.INFO, "topicfs.storage.log"):
        assert 3 == retention.apply_retention(log, NOW).removed_segments
    reasons = [line.split(": ")[2].split(";")[0] for line in caplog.messages]
    assert ["all segments deleted", "retention.bytes=450", "retention.ms=1000"] == reasons


def test_a_follower_begins_no_segment_of_its_own() -> None:
    """A follower does not roll by itself: it waits for its leader's roll, so that both have the same base offsets."""
    on_disk = filled(3, retention_ms=1000)
    on_disk.log.parts.life.take(Role.FOLLOWER)
    assert 0 == retention.apply_retention(on_disk.log, NOW).removed_segments
    assert [0] == on_disk.base_offsets()


def test_retention_without_due_segments_changes_nothing() -> None:
    """If no segment is due, retention neither rolls the log nor deletes a segment."""
    on_disk = filled(9, retention_ms=-1)
    assert NOTHING == retention.apply_retention(on_disk.log, NOW)
    assert [0, 3, 6] == on_disk.base_offsets()
