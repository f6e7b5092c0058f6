"""Sequence numbers count a producer's records from 0 to 2^31 - 1 and then from 0 again."""

from __future__ import annotations

SEQUENCES = 2**31
"""How many sequence numbers there are."""

MAX_SEQUENCE = SEQUENCES - 1

NO_SEQUENCE = -1


def decrement(sequence: int, by: int) -> int:
    """The sequence number `by` records back."""
    return (sequence - by) % SEQUENCES


def follows(last_sequence: int, next_sequence: int) -> bool:
    """Whether `next_sequence` comes right after `last_sequence` (-1: nothing came yet)."""
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == MAX_SEQUENCE)
