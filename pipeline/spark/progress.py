"""The progress of a Spark session: tasks done of all, and the positions of its streaming queries.

It is read from any thread, and changes nothing; what Spark does not report is left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from topicfs.pipeline.source.query.ranges import lag_by_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JobProgress(NamedTuple):
    """Work done and work left, as far as it is known."""

    tasks: int = 0
    """Tasks done, of the stages that began."""
    all_tasks: int = 0
    records: int | None = None
    """Records that streaming queries have read; None: there is no such query, or none has ended a micro-batch."""
    left: Mapping[str, int] = {}
    """Offsets still to be read, by topic."""

    @property
    def done(self) -> int:
        """Records where they are counted, else tasks."""
        return self.tasks if self.records is None else self.records

    @property
    def total(self) -> int | None:
        """All records or tasks, as `done` counts them; None: nothing is known yet."""
        if self.records is None:
            return self.all_tasks or None
        return self.records + sum(self.left.values())


@dataclass(slots=True)
class Tally:
    """Progress seen so far: Spark no longer reports stages and micro-batches that are over."""

    stages: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Tasks done and all tasks, by stage."""
    batches: dict[tuple[str, int], int] = field(default_factory=dict)
    """Records read, by query and micro-batch."""
    left: Counter[str] = field(default_factory=Counter)

    def add_stages(self, active: Mapping[int, tuple[int, int]]) -> None:
        """Add the stages that run; every task of those that no longer do is over."""
        for stage, (_, total) in self.stages.items():
            self.stages[stage] = (total, total)
        self.stages.update(active)

    def add_query(self, progress: Mapping[str, Any]) -> None:
        """Add a streaming query's report of a micro-batch."""
        self.batches[str(progress["runId"]), int(progress["batchId"])] = int(progress["numInputRows"])
        self.left = Counter()
        for partition, lag in lag_by_partition(progress).items():
            self.left[partition.topic] += lag

    def work(self) -> JobProgress:
        """Return the sum of all progress."""
        return JobProgress(
            tasks=sum(done for done, _ in self.stages.values()),
            all_tasks=sum(total for _, total in self.stages.values()),
            records=sum(self.batches.values()) if self.batches else None,
            left={topic: lag for topic, lag in sorted(self.left.items()) if lag > 0},
        )


class ProgressReader:
    """Reads the progress of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tally = Tally()

    def read(self) -> JobProgress:
        """Return the progress by now. Raises whatever Spark raises when it is asked at a bad moment."""
        tracker = self._spark.sparkContext.statusTracker()
        active = {}
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage_id in info.stageIds if info is not None else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    active[stage_id] = (stage.numCompletedTasks, stage.numTasks)
        self._tally.add_stages(active)
        for query in self._spark.streams.active:
            for progress in query.recentProgress:
                self._tally.add_query(json.loads(progress.json))
        return self._tally.work()
