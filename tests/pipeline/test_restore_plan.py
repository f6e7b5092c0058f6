"""Tests of how an archive fits existing topics, and of how its records are divided into rounds."""

from __future__ import annotations

import pytest

from topicfs.pipeline.jobs.restore import plan
from topicfs.storage.model import Offset, TopicPartition
from topicfs.storage.staging.manifest import LogPlacement

ORDERS = TopicPartition("orders", 0)
EXTENT = plan.Extent(first=10, last=29, records=15, oldest_ms=0)
"""Twenty offsets, of which five are gaps."""


@pytest.mark.parametrize(
    ("bounds", "overlap", "rest", "place"),
    [
        (plan.Span(0, 0), plan.Span(10, 10), plan.Span(10, 30), LogPlacement(Offset(0), Offset(10))),
        (plan.Span(10, 10), plan.Span(10, 10), plan.Span(10, 30), LogPlacement(Offset(10))),
        (plan.Span(30, 30), plan.Span(10, 10), plan.Span(10, 30), LogPlacement(Offset(30), Offset(10))),
        (plan.Span(10, 17), plan.Span(10, 17), plan.Span(17, 30), LogPlacement(Offset(17))),
        (plan.Span(3, 7), plan.Span(10, 7), plan.Span(10, 30), LogPlacement(Offset(7))),
        (plan.Span(10, 30), plan.Span(10, 30), plan.Span(30, 30), LogPlacement(Offset(30))),
        (plan.Span(0, 99), plan.Span(10, 30), plan.Span(99, 30), LogPlacement(Offset(99))),
    ],
    ids=["absent", "begins there", "emptied", "begun", "older ones", "all there", "more there"],
)
def test_what_is_there_is_compared_and_the_rest_appended(bounds, overlap, rest, place):
    """Records at existing offsets are compared, others appended; an empty log begins at the archive's first offset."""
    assert plan.PartitionPlan(overlap, rest, place) == plan.plan_partition(ORDERS, EXTENT, bounds)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (plan.Span(31, 31), "orders-0: is empty, but its offsets up to 30 are used"),
        (plan.Span(11, 20), "orders-0: begins at 11, the archive at 10"),
    ],
    ids=["offsets given", "nothing in front"],
)
def test_a_conflict_is_reported_with_a_remedy(bounds, reason):
    """A conflict raises an error with a remedy before anything is changed."""
    with pytest.raises(plan.ConflictError, match=reason) as caught:
        plan.plan_partition(ORDERS, EXTENT, bounds)
    assert "restore into another topic" in str(caught.value)


def test_only_what_is_there_on_both_sides_is_compared():
    """Only offsets that both the archive and the topic have are compared; a new topic has none."""
    parts = {
        ORDERS: plan.plan_partition(ORDERS, EXTENT, plan.Span(10, 17)),
        ORDERS._replace(partition=1): plan.plan_partition(ORDERS, EXTENT, plan.Span(0, 0)),
        ORDERS._replace(partition=2): plan.plan_partition(ORDERS, EXTENT, plan.Span(3, 7)),
    }
    assert {ORDERS: plan.Span(10, 17)} == plan.overlaps(parts)


def spans(extents, max_records):
    parts = {one: plan.plan_partition(one, extent, plan.Span(0, 0)) for one, extent in extents.items()}
    return plan.plan_rounds(parts, extents, max_records)


def test_a_round_takes_what_fits():
    """A round contains a slice of a long partition, or several short partitions.

    Each offset occurs once, in ascending order.
    """
    clicks = TopicPartition("clicks", 0)
    extents = {ORDERS: EXTENT, clicks: plan.Extent(0, 3, 4, 0)}
    assert [
        {clicks: plan.Span(0, 4)},
        {ORDERS: plan.Span(10, 20)},
        {ORDERS: plan.Span(20, 30)},
    ] == spans(extents, 8)
    assert [{clicks: plan.Span(0, 4), ORDERS: plan.Span(10, 30)}] == spans(extents, 100)


def test_a_round_of_one_record_is_the_smallest():
    """A round has at least one record, however large the record is."""
    assert [{ORDERS: plan.Span(offset, offset + 1)} for offset in range(3)] == spans(
        {ORDERS: plan.Extent(0, 2, 3, 0)}, 1
    )


def test_a_round_has_not_too_many_partitions():
    """A round has a limited number of partitions, because each partition adds a condition to the round's query."""
    extents = {TopicPartition("t", number): plan.Extent(0, 0, 1, 0) for number in range(plan.MAX_RANGES + 1)}
    assert [plan.MAX_RANGES, 1] == [len(one) for one in spans(extents, 10**6)]


def test_if_every_record_exists_there_are_no_rounds():
    """If every record exists, there are no rounds."""
    part = plan.plan_partition(ORDERS, EXTENT, plan.Span(10, 30))
    assert [] == plan.plan_rounds({ORDERS: part}, {ORDERS: EXTENT}, 100)
