"""Tests of records as Arrow columns."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import topicfs
from topicfs.pipeline.source.arrow import SCHEMA

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def orders(tmp_path):
    """A topic of two partitions, with more records than one Arrow batch holds."""
    with topicfs.open(tmp_path / "data") as topics:
        created = topics.create("orders", partitions=2)
        for first in range(0, 50_000, 10_000):
            created[0].append_many(
                topicfs.Record(b"%90d" % number, b"k", timestamp=number)
                for number in range(first, first + 10_000)
            )
        created[1].append(topicfs.Record(None, None, (("h", None),), 7))
        yield created


def test_a_topic_is_a_stream_of_arrow(orders):
    """A topic is an Arrow stream with the columns of Spark's Kafka source."""
    table = pa.table(orders.arrow())
    assert SCHEMA.names == table.column_names
    assert 50_001 == table.num_rows
    assert [b"%90d" % number for number in range(50_000)] == table["value"].to_pylist()[:-1]
    assert {
        "key": None,
        "value": None,
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": None}],
    } == table.slice(50_000).to_pylist()[0]


def test_a_stream_is_read_batch_by_batch(orders):
    """A stream consists of several batches of bounded size, so that no reader has to hold a whole topic in memory."""
    sizes = [batch.num_rows for batch in orders.arrow()]
    assert (50_001, True) == (sum(sizes), 2 < len(sizes) and max(sizes) < 50_000)


def test_a_range_of_columns(orders):
    """`arrow` takes the same start and stop as `records`."""
    assert list(range(42, 100)) == orders[0].arrow(42, 100).read_all()["offset"].to_pylist()
    assert [49_999] == orders[0].arrow(-1).read_all()["offset"].to_pylist()
    assert 0 == orders.arrow("@2020-01-01").read_all().num_rows
