"""Tests of streams in older versions of Spark, which pass less to the reader.

`scripts/spark_versions.sh` runs other tests with these versions.
"""

from __future__ import annotations

import contextlib

import pytest

from tests.doubles.engines import append_lines
from topicfs.replication import open_engine

pytestmark = pytest.mark.spark


def reader_of(data, **given):
    from topicfs.pipeline.source.query.options import parse_source_options
    from topicfs.pipeline.source.query.schema import full_schema
    from topicfs.pipeline.source.readers import StreamReader

    options = parse_source_options({"path": str(data), "subscribe": "orders", **given}, streaming=True)
    return StreamReader(options, full_schema(include_headers=False))


@contextlib.contextmanager
def stopping(reader):
    try:
        yield reader
    finally:
        reader.stop()


def test_a_reader_that_is_told_no_start_knows_the_end_of_the_last_batch(tmp_path, monkeypatch):
    """Spark 4.1 does not pass the start of a batch, so the reader remembers the end of the last batch."""
    from topicfs.pipeline.spark_errors import TopicfsException

    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "1")
    with contextlib.closing(open_engine(tmp_path)) as engine:
        append_lines(engine.create_topic("orders").partitions()[0], "1\n2\n3\n")
    with stopping(reader_of(tmp_path, startingOffsets="earliest")) as first:
        assert {"0": 0} == first.initialOffset()["orders"]
        end = first.latestOffset()
        assert {"0": 3} == end["orders"]
    with contextlib.closing(open_engine(tmp_path)) as engine:
        engine.delete_topic("orders")
        append_lines(engine.create_topic("orders").partitions()[0], "1\n2\n3\n4\n")
    with stopping(reader_of(tmp_path, failOnDataLoss="false")) as again:
        assert [] == again.partitions(end, end)
        assert {"0": 4} == again.latestOffset()["orders"]
    with stopping(reader_of(tmp_path)) as again:
        again._known = end
        with pytest.raises(TopicfsException, match="deleted and created again") as caught:
            again.latestOffset()
    assert "TOPICFS_DATA_LOSS" == caught.value.getCondition()


def test_a_limit_that_spark_does_not_pass_on_is_refused(tmp_path, monkeypatch):
    """Before Spark 4.2 a trigger's limit is refused, because a query with availableNow would end too early."""
    from topicfs.pipeline.errors import InvalidOptionError
    from topicfs.pipeline.source import readers

    monkeypatch.setattr(readers, "ReadMaxRows", None)
    with pytest.raises(InvalidOptionError, match="maxOffsetsPerTrigger: needs Spark 4.2"):
        reader_of(tmp_path, maxOffsetsPerTrigger="3")
