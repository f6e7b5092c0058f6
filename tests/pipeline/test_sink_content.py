"""Tests of the content of a write: equal for equal rows in any order and tasks, and different for different rows."""

from __future__ import annotations

import datetime as dt
import random
from functools import reduce
from itertools import pairwise

import pytest

from topicfs.pipeline.sink.layout import Layout, TopicLayout
from topicfs.storage.staging.manifest import Content

pytestmark = pytest.mark.spark

LAYOUT = Layout({"t": TopicLayout((0, 1, 2), 1 << 20), "u": TopicLayout((0,), 1 << 20)})
ROWS = [
    {"value": b"a", "key": b"k", "topic": "t"},
    {"value": b"k", "key": b"a", "topic": "t"},
    {"value": b"a", "key": b"k", "topic": "u"},
    {"value": b"a", "key": None, "topic": "t"},
    {"value": b"a", "key": b"", "topic": "t"},
    {"value": None, "key": b"a", "topic": "t"},
    {"value": b"", "key": b"a", "topic": "t"},
    {"value": b"a" * 300, "key": b"k", "topic": "t"},
    {"value": b"a", "key": b"k", "topic": "t", "partition": 1},
    {"value": b"a", "key": b"k", "topic": "t", "partition": 2},
    {"value": b"a", "key": b"k", "topic": "t", "timestamp": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)},
    {"value": b"a", "key": b"k", "topic": "t", "timestamp": dt.datetime(1970, 1, 2, tzinfo=dt.UTC)},
    {"value": b"a", "key": b"k", "topic": "t", "headers": [{"key": "h", "value": b"v"}]},
    {"value": b"a", "key": b"k", "topic": "t", "headers": [{"key": "hv", "value": b""}]},
    {"value": b"a", "key": b"k", "topic": "t", "headers": [{"key": "h", "value": None}]},
]
"""Rows that all differ from each other."""


def content(rows, *, now=5, first=0):
    """Return the content of rows that a task writes at time `now`.

    The first of the rows without a key go to partition `first`.
    """
    import pyarrow as pa

    from topicfs.pipeline.sink.rows import RowEncoder

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        {
            "value": pa.binary(),
            "key": pa.binary(),
            "topic": pa.string(),
            "partition": pa.int32(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "headers": pa.list_(header),
        }
    )
    encoder = RowEncoder(LAYOUT, None, now_ms=lambda: now, pick=lambda _: first, named=True)
    assert list(encoder.encode(pa.RecordBatch.from_pylist(rows, schema)))
    return encoder.content


def test_each_column_counts():
    """Rows differ if any column differs. Null differs from empty, and equal values in different columns differ."""
    assert len(ROWS) == len({content([row]) for row in ROWS})


def test_rows_count_as_often_as_they_come():
    """A row counts as often as it occurs: replacing a row by a second copy of another row changes the content."""
    pairs = [(0, 0), (0, 1), (1, 1), (0,), (0, 0, 1), (0, 0, 0)]
    assert len(pairs) == len({content([ROWS[at] for at in pair]) for pair in pairs})
    assert content([ROWS[0]] * 2) == Content(2, 2 * content([ROWS[0]]).digest % 2**64)


def test_order_and_tasks_do_not_count(chance: random.Random):
    """The content ignores order, tasks, Arrow batches, the time of writing, and partitions that the sink chooses."""
    rows = [{"value": b"%d" % chance.randrange(50), "topic": "t", "key": None} for _ in range(200)] + ROWS
    whole = content(rows)
    for _ in range(5):
        chance.shuffle(rows)
        cuts = [0, *sorted(chance.sample(range(1, len(rows)), 3)), len(rows)]
        parts = [
            content(rows[begin:end], now=chance.randrange(10**12), first=chance.randrange(9))
            for begin, end in pairwise(cuts)
        ]
        assert whole == reduce(Content.plus, parts)


def test_the_digest_stays_what_it_is():
    """A golden value: data directories store digests, so other processors and releases must compute the same digest."""
    assert "15:0db61940137c1160" == str(content(ROWS))
