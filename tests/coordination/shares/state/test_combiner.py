"""Tests of merging the states of records: Kafka's own test cases, and invariants."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicfs.coordination.records.share_state_records import StateBatch
from topicfs.coordination.shares.state.shard import combine

B = StateBatch


@pytest.mark.parametrize(
    ("known", "changed", "expected"),
    [
        (B(100, 110, 0, 1), B(100, 110, 0, 2), [B(100, 110, 0, 2)]),
        (B(100, 110, 0, 3), B(100, 110, 0, 1), [B(100, 110, 0, 3)]),
        (B(100, 110, 0, 1), B(100, 105, 0, 2), [B(100, 105, 0, 2), B(106, 110, 0, 1)]),
        (B(100, 110, 0, 3), B(100, 105, 0, 1), [B(100, 110, 0, 3)]),
        (B(100, 110, 0, 1), B(100, 115, 0, 2), [B(100, 115, 0, 2)]),
        (B(100, 110, 0, 3), B(100, 115, 0, 1), [B(100, 110, 0, 3), B(111, 115, 0, 1)]),
        (
            B(100, 115, 0, 1),
            B(105, 110, 1, 1),
            [B(100, 104, 0, 1), B(105, 110, 1, 1), B(111, 115, 0, 1)],
        ),
        (B(100, 115, 1, 1), B(105, 110, 0, 1), [B(100, 115, 1, 1)]),
        (B(100, 110, 0, 1), B(105, 110, 0, 2), [B(100, 104, 0, 1), B(105, 110, 0, 2)]),
        (B(100, 110, 0, 2), B(105, 110, 0, 1), [B(100, 110, 0, 2)]),
        (B(100, 110, 0, 1), B(105, 115, 0, 2), [B(100, 104, 0, 1), B(105, 115, 0, 2)]),
        (B(100, 110, 0, 2), B(105, 115, 0, 1), [B(100, 110, 0, 2), B(111, 115, 0, 1)]),
        (B(100, 110, 0, 1), B(111, 119, 0, 1), [B(100, 119, 0, 1)]),
        (B(100, 110, 0, 1), B(90, 105, 0, 1), [B(90, 110, 0, 1)]),
    ],
)
def test_two_batches(known: StateBatch, changed: StateBatch, expected: list[StateBatch]):
    """Row 168: the higher delivery count wins, and for equal counts the higher state number.

    Adjacent batches with the same count and state are merged.
    """
    assert tuple(expected) == combine([known], [changed], -1)


def test_records_below_the_start_are_dropped():
    """Row 168: a batch that contains the start offset is cut at the start offset."""
    batches = [B(90, 99, 0, 1), B(100, 110, 0, 1)]

    assert (B(105, 110, 0, 1), B(111, 115, 2, 1)) == combine(batches, [B(111, 115, 2, 1)], 105)


def test_an_accepted_piece_splits_what_was_held():
    """If the middle of a batch is accepted, the batch is split into three, as in Kafka's classes.

    A state with a lower delivery count changes nothing.
    """
    pieces = combine([B(100, 119, 0, 1)], [B(105, 109, 2, 1)], 100)

    assert (B(100, 104, 0, 1), B(105, 109, 2, 1), B(110, 119, 0, 1)) == pieces
    assert pieces == combine(pieces, [B(100, 119, 0, 0)], 100)


batches = st.lists(
    st.builds(
        lambda first, size, state, count: B(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 4),
    ),
    max_size=8,
)


def states(found: tuple[StateBatch, ...] | list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """Return the delivery count and the state of each record.

    If batches overlap, the highest delivery count wins. If two counts are equal, the higher state wins.
    """
    best: dict[int, tuple[int, int]] = {}
    for one in found:
        for offset in range(max(start, one.first), one.last + 1):
            best[offset] = max(best.get(offset, (-1, -1)), (one.deliveries, one.state))
    return best


@given(batches, batches, st.integers(-1, 20))
def test_each_record_has_the_state_that_was_delivered_most(known, changed, start):
    """Merged batches are ordered and do not overlap; each record has the state with the most deliveries."""
    merged = combine(known, changed, start)

    assert states([*known, *changed], start) == states(merged, start)
    assert all(one.last < two.first for one, two in itertools.pairwise(merged))
