"""A process with a Spark driver, which tests kill. Its streaming query copies the topic `source` to `target`.

    python -m tests.soak.copying_driver PATH CHECKPOINT [--named] [--stale COPY] [--seed N]

If the query fails, it is started again in the same JVM, each time with a random `maxOffsetsPerTrigger`. The driver
prints one line for each start and failure. With `--named` the query writes within `foreachBatch`, as versions of an
application. With `--stale` the driver first runs a query with an old copy of the checkpoint, which must be refused.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.pipeline.conftest import start_session
from tests.soak import say

KEYS = 8
LIMITS = (20, 60, 200)
"""Values of maxOffsetsPerTrigger."""
LARGEST = 200
END = ".end"
"""Suffix of a file beside the checkpoint. When the file exists, the driver copies the remaining rows and ends."""
POLL_SECONDS = 0.2
REFUSED_EXIT = 3
"""Exit status after an error that no killed process can cause."""
OURS = "[TOPICFS_"
"""Prefix of the error conditions of topicfs, which no killed process can cause."""


def copy(spark: SparkSession, asked: argparse.Namespace, checkpoint: str, limit: int, *, end: bool) -> Any:
    """Start a query that copies the topic."""
    source = spark.readStream.format("topicfs").option("path", asked.path).option("subscribe", "source")
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", limit)
    rows = source.load().selectExpr(f"cast(pmod(hash(value), {KEYS}) AS string) AS key", "value")
    writer = rows.repartition(2).writeStream.option("checkpointLocation", checkpoint)
    target = {"path": asked.path, "topic": "target"}

    def write(batch: Any, number: int) -> None:
        name = {"txnAppId": "copies", "txnVersion": str(number)}
        batch.write.format("topicfs").options(**target, **name).mode("append").save()

    writer = writer.foreachBatch(write) if asked.named else writer.format("topicfs").options(**target)
    return (writer.trigger(availableNow=True) if end else writer).start()


def refuse(spark: SparkSession, asked: argparse.Namespace) -> None:
    """Run the query with an old copy of its checkpoint; it must fail with the right reason."""
    try:
        copy(spark, asked, asked.stale, LARGEST, end=True).awaitTermination()
    except StreamingQueryException as error:
        if "[TOPICFS_COMMITTED_BEFORE]" in str(error):
            say("refused")
            return
        say(f"wrong: {error}")
    else:
        say("wrong: an old checkpoint was accepted")
    sys.exit(REFUSED_EXIT)


def main() -> None:
    """Copy until killed, or until all rows are copied."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("checkpoint")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--stale")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    spark = start_session("local[2,3]", {})
    if asked.stale:
        refuse(spark, asked)
    while True:
        end = Path(asked.checkpoint + END).exists()
        limit = LARGEST if end else chance.choice(LIMITS)
        try:
            query = copy(spark, asked, asked.checkpoint, limit, end=end)
            say("started")
            while not query.awaitTermination(POLL_SECONDS):
                if not end and Path(asked.checkpoint + END).exists():
                    query.stop()
        # The start of a query can fail as well, because it uses Python processes that may be killed.
        except (PySparkException, Py4JError) as error:
            if OURS in str(error):
                say(f"wrong: {error}")
                sys.exit(REFUSED_EXIT)
            say(f"failed: {' '.join(str(error).split())[:300]}")
        else:
            if end:
                break
    spark.stop()


if __name__ == "__main__":
    main()
