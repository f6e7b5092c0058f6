"""Tests of jobs that write to a Kafka cluster without a checkpoint: the jobs end, and count the records they sent."""

from __future__ import annotations

import contextlib

import pytest

from tests.doubles.engines import append_lines
from topicfs.replication import open_engine

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture
def data(tmp_path):
    """Make a topic with four lines within one minute."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        append_lines(engine.create_topic("orders").partitions()[0], "one\ntwo\nthree\nfour\n")
    return str(tmp_path / "data")


def test_what_is_sent_to_a_cluster_is_counted(spark, broker, data):
    """Records sent to a cluster are counted without an observation, because Spark's Kafka sink never completes one."""
    from testing.broker.client import Client
    from topicfs.pipeline.jobs.aggregate import AggregateOptions, aggregate
    from topicfs.pipeline.jobs.replay import ReplayOptions, replay

    topics = {"counted-lines": 2, "counted-windows": 1}
    for topic, partitions in topics.items():
        Client(broker.bootstrap_server).create_topic(topic, partitions=partitions)
    places = {"path": data, "source": "orders", "target_path": f"kafka://{broker.bootstrap_server}"}
    chosen = ReplayOptions(**places, target="counted-lines", where="length(value) > 3")
    assert [("orders", "counted-lines", 2)] == [tuple(row) for row in replay(spark, chosen).collect()]
    windows = AggregateOptions(**places, target="counted-windows", window="1 minute")
    assert [("orders", "counted-windows", 1)] == [tuple(row) for row in aggregate(spark, windows).collect()]

    server = {"kafka.bootstrap.servers": broker.bootstrap_server}
    sent = spark.read.format("kafka").options(**server, subscribe=",".join(topics)).load()
    values = [row.value for row in sent.orderBy("topic", "value").collect()]
    assert [b"four", b"three"] == values[:2]
    assert b'"count":4' in values[2]
    assert 3 == len(values)
