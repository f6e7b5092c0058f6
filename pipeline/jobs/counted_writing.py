"""Rows into a topic at once, and how many that were: sinks tell a writer nothing of it."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as spark_functions

from pipeline.places.place import Place


def write_counted(rows: DataFrame, target: Place, *, topic: str) -> int:
    """Append `rows` to a topic; give their number. What is raised is Spark's own."""
    if target.is_kafka:
        return _send_counted(rows, target, topic=topic)
    written = Observation()
    _write(rows.observe(written, spark_functions.count("*").alias("rows")), target, topic=topic)
    return int(written.get["rows"])


def _send_counted(rows: DataFrame, target: Place, *, topic: str) -> int:
    """Through Kafka's batch sink, of which Spark tells no observation: to wait for one would be to wait for ever.

    So the rows are put aside, in memory and beyond that on the executors' disks, counted there and sent from there.
    """
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        count = kept.count()
        _write(kept, target, topic=topic)
    finally:
        kept.unpersist()
    return count


def _write(rows: DataFrame, target: Place, *, topic: str) -> None:
    rows.write.format(target.format).mode("append").options(**target.options, topic=topic).save()
