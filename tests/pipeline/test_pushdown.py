"""Tests of filter pushdown: a read with filters returns every row that the filters admit."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.engines import TINY_SEGMENTS
from topicfs.replication import open_engine
from topicfs.storage.codec.headers import BatchStamp, Codec
from topicfs.storage.codec.records import encode
from topicfs.storage.model import Offset, Record, Timestamp

pytestmark = pytest.mark.spark

START = 1_700_000_000_000
SPREAD_MS = 12
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR = [
    datetime(1, 1, 2, tzinfo=UTC),
    EPOCH - timedelta(milliseconds=1),
    EPOCH,
    datetime(9999, 12, 30, tzinfo=UTC),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Make two topics of three partitions with many segments. Times are out of order, and a few are missing."""
    chosen = random.Random(1)
    data = tmp_path_factory.mktemp("pushdown")
    engine = open_engine(data)
    for topic in ("orders", "payments"):
        created = engine.create_topic(topic, partitions=3, overrides=TINY_SEGMENTS)
        for partition in created.partitions().values():
            for _ in range(chosen.randrange(7)):
                times = [
                    chosen.choice([-1] + [START + chosen.randrange(SPREAD_MS)] * 9)
                    for _ in range(chosen.randint(1, 6))
                ]
                records = [Record(Offset(n), Timestamp(time), None, b"v") for n, time in enumerate(times)]
                partition.append(encode(records, BatchStamp(codec=Codec(chosen.randrange(5)))))
    engine.close()
    return str(data)


def rows(path, filters):
    """Return the rows of a read with `filters`, or all rows if `filters` is None."""
    from topicfs.pipeline.data_source import TopicfsDataSource
    from topicfs.pipeline.source.readers import FilteringBatchReader

    source = TopicfsDataSource({"path": path, "subscribe": "orders,payments"})
    reader = FilteringBatchReader(*source._reading(source.schema(), streaming=False))
    if filters is not None:
        assert filters == list(reader.pushFilters(filters))
    batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
    return [row for batch in batches for row in batch.to_pylist()]


VALUES = {
    "topic": st.sampled_from(["orders", "payments", "other"]),
    "partition": st.integers(-1, 4) | st.sampled_from([-(1 << 31), (1 << 31) - 1]),
    "offset": st.integers(-2, 25) | st.sampled_from([-(1 << 63), (1 << 63) - 1]),
    "timestamp": st.builds(
        lambda millis, micros: EPOCH + timedelta(milliseconds=START + millis, microseconds=micros),
        st.integers(-2, SPREAD_MS + 1),
        st.sampled_from([0, 0, 0, 1, 999]),
    )
    | st.sampled_from(FAR),
}
OPERATIONS = {
    "EqualTo": lambda one, value: one == value,
    "EqualNullSafe": lambda one, value: one == value,
    "GreaterThan": lambda one, value: value is not None and one > value,
    "GreaterThanOrEqual": lambda one, value: value is not None and one >= value,
    "LessThan": lambda one, value: value is not None and one < value,
    "LessThanOrEqual": lambda one, value: value is not None and one <= value,
    "In": lambda one, value: one in value,
}


@pytest.fixture(scope="module")
def everything(path):
    return rows(path, None)


@st.composite
def conditions(draw, names):
    """Draw a filter: its name, column and value, and whether it is negated."""
    name, column = draw(st.sampled_from(names)), draw(st.sampled_from(sorted(VALUES)))
    value = draw(VALUES[column])
    if name == "In":
        value = tuple(draw(st.lists(st.none() | VALUES[column], min_size=1, max_size=4)))
    elif name == "EqualNullSafe":
        value = draw(st.none() | st.just(value))
    return name, column, value, draw(st.integers(0, 5)) == 0


@pytest.mark.parametrize("name", sorted(OPERATIONS))
@given(data=st.data())
def test_filters_leave_out_no_row_that_they_admit(path, everything, name, data):
    """For random filters, the rows of a read with pushdown, filtered again by Spark, equal those without pushdown."""
    from pyspark.sql import datasource

    others = data.draw(st.lists(conditions(sorted(OPERATIONS)), max_size=2))
    chosen = [data.draw(conditions([name])), *others]

    def admitted(row):
        return all(
            OPERATIONS[name](row[column], value) is not negated for name, column, value, negated in chosen
        )

    filters = [(getattr(datasource, name)((column,), value), no) for name, column, value, no in chosen]
    narrowed = rows(path, [datasource.Not(one) if negated else one for one, negated in filters])
    assert [row for row in everything if admitted(row)] == [row for row in narrowed if admitted(row)]
