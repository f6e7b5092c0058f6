"""Tests of `format("topicfs")` in a session that never called `topicfs.spark.register`."""

from __future__ import annotations

import pytest

from topicfs.replication import open_engine

pytestmark = pytest.mark.spark


def test_a_session_knows_the_format_by_its_name(spark, tmp_path):
    """Spark finds `pyspark_topicfs` by its name, to read and write batches and streams, with and without filters."""
    engine = open_engine(tmp_path / "data")
    engine.create_topic("orders")
    engine.create_topic("copy")
    engine.close()
    fresh = spark.newSession()
    assert "false" == fresh.conf.get("spark.sql.python.filterPushdown.enabled")
    path = str(tmp_path / "data")
    rows = fresh.range(4).selectExpr("cast(id AS string) AS value")
    rows.write.format("topicfs").mode("append").options(path=path, topic="orders").save()
    source = fresh.readStream.format("topicfs").options(
        path=path, subscribe="orders", startingOffsets="earliest"
    )
    sink = source.load().select("value").writeStream.format("topicfs").options(path=path, topic="copy")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    copied = fresh.read.format("topicfs").options(path=path, subscribe="copy").load()
    assert 4 == copied.count()
    assert 1 == copied.where("offset >= 3").count()


def test_filters_are_handed_down_where_the_setting_is_on(spark, tmp_path):
    """With Spark's filter pushdown, a filter reduces ten tasks to one, for a SQL table and for a DataFrame.

    The rows are the same with and without pushdown.
    """
    engine = open_engine(tmp_path / "data")
    engine.create_topic("orders")
    engine.close()
    path = str(tmp_path / "data")
    fresh = spark.newSession()
    rows = fresh.range(10).selectExpr("cast(id AS string) AS value")
    rows.coalesce(1).write.format("topicfs").mode("append").options(path=path, topic="orders").save()
    fresh.sql(
        f"CREATE TABLE filtered USING topicfs OPTIONS (path '{path}', subscribe 'orders', minPartitions '10')"
    )
    try:
        frame = fresh.read.format("topicfs").options(path=path, subscribe="orders", minPartitions="10").load()
        tasks = []
        for pushdown in ("false", "true"):
            fresh.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
            for read in (fresh.table("filtered"), frame):
                found = read.where("offset = 7").selectExpr("cast(value AS string)")
                tasks.append(found.rdd.getNumPartitions())
                assert ["7"] == [row.value for row in found.collect()]
        assert [10, 10, 1, 1] == tasks
    finally:
        fresh.sql("DROP TABLE filtered")
