"""`format("topicfs")` in a session in which nobody called `topicfs.spark.register`."""

from __future__ import annotations

import pytest

from topicfs.storage.manager import open_engine

pytestmark = pytest.mark.spark


def test_a_session_knows_the_format_by_its_name(spark, tmp_path):
    """Spark finds `pyspark_topicfs` by its name: batches and streams are written and read, filters or not."""
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
