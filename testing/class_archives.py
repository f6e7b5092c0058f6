"""Makes class archives for Spark and Kafka, once per checkout: `python -m testing.class_archives`.

Java writes an archive at the end of one run of Kafka or Spark. `scripts/test.sh` makes the archives before the tests,
which start some seventy JVMs: with an archive a JVM starts in half the time.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from testing.broker.broker import Broker
from testing.broker.libraries import Java, UnavailableError, find_java
from testing.java import PLAIN_FLAGS, archive_of
from testing.spark_home import spark_home

ROOT = Path(__file__).parents[1]
QUERY = """
from pathlib import Path

from pyspark.sql import SparkSession

from topicfs import pipeline
from topicfs.replication import open_engine

engine = open_engine(Path("data"))
for topic in ("orders", "counts"):
    engine.create_topic(topic)
engine.close()
settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
pipeline.register(spark)
data = {"path": "data", "subscribe": "orders", "startingOffsets": "earliest"}
lines = spark.range(1000).selectExpr("CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value")
lines.write.format("topicfs").mode("append").options(path="data", topic="orders").save()
spark.read.format("topicfs").options(**data).load().write.partitionBy("partition").parquet("kept")
print(spark.read.parquet("kept").where("offset > 5").orderBy("offset").collect())
stream = spark.readStream.format("topicfs").options(**data).load().withWatermark("timestamp", "1 second")
counts = stream.groupBy("timestamp", "key").count().selectExpr("key", "CAST(count AS STRING) AS value")
sink = counts.writeStream.format("topicfs").options(path="data", topic="counts", checkpointLocation="progress")
sink.trigger(availableNow=True).start().awaitTermination()
print(spark.createDataFrame([(1, "one")], "number long, name string").collect())
"""
"""Queries that load the classes that jobs and streams need."""


def main() -> None:
    """Make each archive that is missing or older than its inputs."""
    try:
        java = find_java()
    except UnavailableError as error:
        sys.stdout.write(f"no archives of classes: {error}\n")
        return
    _make("kafka", java, java.jars, lambda flag, folder: _run_kafka(replace(java, flags=(flag,)), folder))
    home = spark_home()
    if home is not None:
        _make("spark", java, home / "jars", lambda flag, folder: _run_spark(home, flag, folder))


def _make(name: str, java: Java, jars: Path, run: Callable[[str, Path], None]) -> None:
    archive = archive_of(name)
    made_from = archive.with_suffix(".from")
    now = _fingerprint(java.program, jars.iterdir())
    if archive.exists() and made_from.exists() and made_from.read_text() == now:
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    # A JVM crashes if it gets an incomplete archive.
    unfinished = archive.with_suffix(".unfinished")
    with tempfile.TemporaryDirectory() as folder:
        run(f"-XX:ArchiveClassesAtExit={unfinished}", Path(folder))
    unfinished.replace(archive)
    made_from.write_text(now)


def _fingerprint(program: str, jars: Iterable[Path]) -> str:
    version = subprocess.run([program, "-version"], capture_output=True, text=True, check=True).stderr
    found = sorted((str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars)
    return hashlib.sha256(repr((version, found, QUERY)).encode()).hexdigest()


def _run_kafka(java: Java, folder: Path) -> None:
    with Broker(folder / "node", java) as broker:
        broker.format()
        broker.start()
        # The JVM writes the archive at exit, which takes minutes on a busy machine.
        broker.stop(seconds=600)


def _run_spark(home: Path, flag: str, folder: Path) -> None:
    settings = {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": " ".join([*PLAIN_FLAGS, flag])}
    environment = {**os.environ, **settings, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", QUERY], cwd=folder, env=environment, capture_output=True, check=True
    )


if __name__ == "__main__":
    main()
