"""Turns Spark's filters into a `Narrowing` of topics, partitions, offsets and times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from topicfs.pipeline.source.query.narrowing import EVERYTHING, Narrowing, at_least, below, one_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = frozenset({"partition", "offset", "timestamp"})


def narrow(filters: Iterable[Filter]) -> Narrowing:
    """Return the narrowing by all of `filters`; filters that do not narrow the read are skipped."""
    found = EVERYTHING
    for one in filters:
        found = _narrow(found, one)
    return found


def _narrow(known: Narrowing, one: Filter) -> Narrowing:
    column = _column(one)
    if column not in _NUMBERS | {"topic"}:
        return known
    if isinstance(one, EqualTo | EqualNullSafe):
        return one_of(known, column, [_number(one.value)])
    if isinstance(one, In):
        return one_of(known, column, [_number(value) for value in one.value])
    return _narrow_by_order(known, column, one) if column in _NUMBERS else known


def _narrow_by_order(known: Narrowing, column: str, one: Filter) -> Narrowing:
    if isinstance(one, GreaterThan):
        # A timestamp loses its microseconds, so a later record may still have the same millisecond.
        return at_least(known, column, _number(one.value) + (not isinstance(one.value, datetime)))
    if isinstance(one, GreaterThanOrEqual):
        return at_least(known, column, _number(one.value))
    if isinstance(one, LessThan):
        return below(known, column, _number(one.value))
    if isinstance(one, LessThanOrEqual):
        return below(known, column, _number(one.value) + 1)
    return known


def _column(one: Filter) -> str:
    """Return the column of a filter; empty if the filter has no column, or tests a part of a column."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _number(value: Any) -> Any:
    """Return a time as milliseconds, rounded down; any other value as it is."""
    if not isinstance(value, datetime):
        return value
    aware = value if value.tzinfo else value.astimezone()
    return (aware - _EPOCH) // timedelta(milliseconds=1)
