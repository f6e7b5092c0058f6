"""Count the words of the topic `text`, and write each word's count for every ten seconds to `words`, exactly once.

    python examples/word_count.py DATA CHECKPOINT             counts the present records, then ends
    python examples/word_count.py DATA CHECKPOINT --follow    counts new records too, every second, until SIGTERM

DATA is a data directory, which a mount may own; both topics must exist. CHECKPOINT stores the query's progress.
However a run ends, the next run with the same CHECKPOINT continues where it ended. Every word is counted once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

WORDS = "explode(regexp_extract_all(CAST(value AS STRING), '[A-Za-z]+', 0)) AS word"


def main(data: str, checkpoint: str, follow: str = "") -> None:
    """Run the query, then print what each micro-batch did."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("word count")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    query = write(count(read(spark, data)), data, checkpoint, follow=bool(follow))
    wait(query)
    for batch in query.recentProgress:
        if batch.numInputRows:
            print(
                f"batch {batch.batchId}: {batch.numInputRows:,} lines in {batch.batchDuration / 1000:.1f} s"
            )
    spark.stop()


def read(spark: SparkSession, data: str) -> DataFrame:
    """Stream the topic `text`, from its first record on."""
    return (
        spark.readStream.format("topicfs")
        .option("path", data)
        .option("subscribe", "text")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 250_000)
        .load()
    )


def count(lines: DataFrame) -> DataFrame:
    """Count each word per ten seconds.

    A window ends once a record was read that is ten seconds newer than the window's end.
    """
    words = lines.withWatermark("timestamp", "10 seconds").selectExpr("timestamp", WORDS)
    counts = words.groupBy(window("timestamp", "10 seconds"), "word").count()
    return counts.selectExpr("word AS key", "CAST(count AS STRING) AS value", "window.end AS timestamp")


def write(records: DataFrame, data: str, checkpoint: str, *, follow: bool) -> StreamingQuery:
    """Stream records to the topic `words`; the keys determine the partitions."""
    sink = (
        records.writeStream.format("topicfs")
        .option("path", data)
        .option("topic", "words")
        .option("checkpointLocation", checkpoint)
    )
    return (sink.trigger(processingTime="1 second") if follow else sink.trigger(availableNow=True)).start()


def wait(query: StreamingQuery) -> None:
    """Wait until the query ends or SIGTERM arrives."""
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    while not query.awaitTermination(timeout=1):
        if asked_to_end.is_set():
            query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
