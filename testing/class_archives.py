"""Archives of the classes of Spark and of Kafka, made once a checkout: `python -m testing.class_archives`.

Each is made by running the program once. `scripts/test.sh` does it before the tests, which start some seventy Java
machines: with an archive such a machine is up in half the time.
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

QUERY = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(1000).selectExpr("id % 7 AS remainder").groupBy("remainder").count().collect())
"""
"""A query that loads the classes which every job needs."""


def main() -> None:
    """Make each archive that is absent or older than what it was made from."""
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
    # A machine that is given half an archive crashes.
    unfinished = archive.with_suffix(".unfinished")
    with tempfile.TemporaryDirectory() as folder:
        run(f"-XX:ArchiveClassesAtExit={unfinished}", Path(folder))
    unfinished.replace(archive)
    made_from.write_text(now)


def _fingerprint(program: str, jars: Iterable[Path]) -> str:
    version = subprocess.run([program, "-version"], capture_output=True, text=True, check=True).stderr
    found = sorted((str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars)
    return hashlib.sha256(repr((version, found)).encode()).hexdigest()


def _run_kafka(java: Java, folder: Path) -> None:
    with Broker(folder / "node", java) as broker:
        broker.format()
        broker.start()
        # It writes the archive as it ends: on a busy machine that takes minutes.
        broker.stop(seconds=600)


def _run_spark(home: Path, flag: str, folder: Path) -> None:
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": " ".join([*PLAIN_FLAGS, flag])}
    subprocess.run(
        [sys.executable, "-c", QUERY], cwd=folder, env=environment, capture_output=True, check=True
    )


if __name__ == "__main__":
    main()
