"""A stream from topic to topic, compared with a model, while both topics are recreated and its checkpoint is reset.

According to the model, with failOnDataLoss a run from a recreated source fails and changes nothing. Without
failOnDataLoss the new topic is read from its beginning. Each record of the current source is copied to the current
target once. A reset checkpoint copies nothing twice, and skips nothing without an error.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.doubles.engines import append_lines, read_lines
from tests.pipeline.conftest import start_session
from tests.soak import kept_if_failed
from topicfs.replication import open_engine

PARTITIONS = 2
MAX_LINES = 40


class Model:
    """The lines that the target must have, and the lines that a run must still copy."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.pending: list[str] = []
        self.begun = False
        """True if the checkpoint has offsets of the source."""
        self.recreated = False
        """True if the source was recreated after the checkpoint got offsets of it."""

    def recreate(self) -> None:
        """Note that the source was recreated."""
        self.pending = []
        self.recreated = self.begun

    def ran(self) -> None:
        """Note that the query ran to its end."""
        self.written += self.pending
        self.pending, self.begun, self.recreated = [], True, False


class Stream:
    """The topics, the query, and the model that they are compared with."""

    def __init__(self, spark: SparkSession, folder: Path, chance: random.Random) -> None:
        self._spark = spark
        self._data = folder / "data"
        self._checkpoint = folder / "checkpoint"
        self._backup = folder / "backup"
        self._chance = chance
        self._model = Model()
        self._lines = 0
        self._batches_since_backup: int | None = None
        self.done: Counter[str] = Counter()
        engine = open_engine(self._data)
        for topic in ("source", "target"):
            engine.create_topic(topic, partitions=PARTITIONS)
        engine.close()

    def step(self) -> None:
        """Take one random step, and compare the topics with the model. Raises AssertionError."""
        action = self._chance.choices(
            [self._append, self._remake_source, self._remake_target, self._keep, self._put_back],
            [6, 2, 1, 2, 2],
        )[0]
        action()
        if self._chance.random() < 2 / 3:
            self._run()
        self._check()

    def _append(self) -> None:
        engine = open_engine(self._data)
        for _ in range(self._chance.randint(1, 3)):
            lines = [f"line {self._lines + at}" for at in range(self._chance.randint(1, MAX_LINES))]
            self._lines += len(lines)
            append_lines(
                engine.partition("source", self._chance.randrange(PARTITIONS)), "\n".join(lines) + "\n"
            )
            self._model.pending += lines
        engine.close()
        self.done["appends"] += 1

    def _remake(self, topic: str) -> None:
        engine = open_engine(self._data)
        engine.delete_topic(topic)
        engine.create_topic(topic, partitions=PARTITIONS)
        engine.close()
        self.done[f"{topic}s made again"] += 1
        self._batches_since_backup = None

    def _remake_source(self) -> None:
        self._remake("source")
        self._model.recreate()
        if self._chance.random() < 2 / 3:
            self._append()

    def _remake_target(self) -> None:
        self._remake("target")
        self._model.written = []

    def _keep(self) -> None:
        if self._model.begun and not self._model.recreated:
            shutil.rmtree(self._backup, ignore_errors=True)
            shutil.copytree(self._checkpoint, self._backup)
            self._batches_since_backup = 0

    def _put_back(self) -> None:
        """Run an older checkpoint, which must be refused, and then the newest checkpoint again.

        The older checkpoint must read other rows than before: if it were only one micro-batch older, and there were
        nothing new to read, it would rightly copy the same rows again.
        """
        behind = 1 if self._model.pending else 2
        if (self._batches_since_backup or 0) < behind or self._model.recreated:
            return
        newest = self._checkpoint.with_name("newest")
        self._checkpoint.rename(newest)
        shutil.copytree(self._backup, self._checkpoint)
        said = self._error(strict=True)
        assert "[TOPICFS_COMMITTED_BEFORE]" in said, said
        shutil.rmtree(self._checkpoint)
        newest.rename(self._checkpoint)
        self.done["checkpoints put back, refused"] += 1
        self.done["one micro-batch behind"] += self._batches_since_backup == 1

    def _run(self) -> None:
        strict = self._chance.random() < 1 / 2
        if self._model.recreated and strict:
            said = self._error(strict=True)
            assert "[TOPICFS_DATA_LOSS] source: was deleted and created again" in said, said
            self.done["strict runs that failed"] += 1
            return
        brought = len(self._model.pending)
        said = self._error(strict=strict)
        assert "" == said, said
        self.done[
            "strict runs"
            if strict
            else "lenient runs over another topic"
            if self._model.recreated
            else "lenient runs"
        ] += 1
        self.done["records"] += brought
        if self._batches_since_backup is not None and brought:
            self._batches_since_backup += 1
        self._model.ran()

    def _error(self, *, strict: bool) -> str:
        """Run the query to its end; return its error, or an empty string."""
        source = self._spark.readStream.format("topicfs").option("path", str(self._data))
        source = source.option("subscribe", "source").option("startingOffsets", "earliest")
        source = source.option("failOnDataLoss", str(strict).lower())
        sink = source.load().select("value").writeStream.format("topicfs").option("path", str(self._data))
        sink = sink.option("topic", "target").option("checkpointLocation", str(self._checkpoint))
        try:
            sink.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as error:
            return str(error)
        return ""

    def _check(self) -> None:
        engine = open_engine(self._data, read_only=True)
        try:
            found = [line for one in engine.topic("target").partitions().values() for line in read_lines(one)]
        finally:
            engine.close()
        assert sorted(self._model.written) == sorted(found)


def soak(*, seconds: float, seed: int) -> str:
    """Take steps for `seconds`; return what was done. If an AssertionError is raised, all files are kept."""
    begun, steps = time.monotonic(), 0
    # The workers of the session use the same Python as this process.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = start_session("local[2]", {})
    try:
        with kept_if_failed() as folder:
            stream = Stream(spark, folder, random.Random(seed))
            while time.monotonic() < begun + seconds:
                stream.step()
                steps += 1
    finally:
        spark.stop()
    done = ", ".join(f"{name} {count}" for name, count in sorted(stream.done.items()))
    return f"topics made again: {steps} steps in {time.monotonic() - begun:.0f} s: {done}"
