"""The progress of a job as a bar on standard error, drawn by a thread and removed at the end.

The thread reads the progress from the Spark session and never changes the session. It shows what Spark reports.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from topicfs.pipeline.source.query.ranges import lag_by_partition
from topicfs.storage.messages import printable
from topicfs.terminal import console, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JobProgress(NamedTuple):
    """Work done and work left, as far as Spark reports them."""

    tasks: int = 0
    """Finished tasks of the stages that have started."""
    all_tasks: int = 0
    records: int | None = None
    """Records that streaming queries have read; None: no query has finished a micro-batch."""
    left: Mapping[str, int] = {}
    """Offsets left to read, by topic."""

    @property
    def done(self) -> int:
        """Number of records if they are counted, otherwise number of finished tasks."""
        return self.tasks if self.records is None else self.records

    @property
    def total(self) -> int | None:
        """Total records or tasks, in the unit of `done`; None: unknown."""
        if self.records is None:
            return self.all_tasks or None
        return self.records + sum(self.left.values())


@dataclass(slots=True)
class Tally:
    """The progress until now. It is kept here, because Spark no longer reports finished stages and micro-batches."""

    stages: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each stage, the number of its finished tasks and the number of all its tasks."""
    batches: dict[tuple[str, int], int] = field(default_factory=dict)
    """Records read, by query and micro-batch."""
    left: Counter[str] = field(default_factory=Counter)

    def add_stages(self, active: Mapping[int, tuple[int, int]]) -> None:
        """Update the running stages. A stage that is not in `active` no longer runs, so all its tasks are finished."""
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
        """Return the current progress. May raise any error of Spark, for example while the session starts or ends."""
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


UPDATE_PERIOD_SECONDS = 0.25
UPDATE_TIMEOUT_SECONDS = 5.0
"""How long the end of a job waits for a running update."""
STARTING = "Spark starts"


class ProgressBar:
    """One line with the progress of a job. Not drawn if there is no terminal."""

    def __init__(self, job: str, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task(job, total=None, status=STARTING)

    @property
    def is_drawn(self) -> bool:
        return not self._progress.disable

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Show a session's progress while the block runs. Errors never reach the job."""
        if self._progress.disable:
            yield
            return
        over = threading.Event()
        reader = ProgressReader(spark)
        thread = threading.Thread(target=self._follow, args=(reader, over), daemon=True, name="progress bar")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(UPDATE_TIMEOUT_SECONDS)

    def _follow(self, reader: ProgressReader, over: threading.Event) -> None:
        while not over.wait(UPDATE_PERIOD_SECONDS):
            try:
                self.show(reader.read())
            except Exception:  # noqa: BLE001 (a bar that cannot be drawn is no reason to end a job)
                return

    def say(self, line: str) -> None:
        """Print a line above the bar; if no bar is drawn, on standard error."""
        if self.is_drawn:
            self._progress.console.print(plain(line))
        else:
            click.echo(printable(line), err=True)

    def show(self, work: JobProgress) -> None:
        self._progress.update(self._task, completed=work.done, total=work.total, status=status_text(work))


@contextmanager
def progress_bar(job: str) -> Iterator[ProgressBar]:
    """Yield a bar that is removed when the block ends."""
    screen = console(error=True)
    if screen.is_terminal:
        # Use a duplicate, because the usual descriptor is redirected while Spark starts.
        screen.file = os.fdopen(os.dup(screen.file.fileno()), "w")
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", style="name"),
        BarColumn(),
        TextColumn("{task.fields[status]}", markup=False),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not screen.is_terminal,
    )
    with progress:
        yield ProgressBar(job, progress)
    if screen.is_terminal:
        screen.file.close()


def status_text(work: JobProgress) -> str:
    """Return the text beside the bar; control characters in names of topics are escaped."""
    parts = []
    if work.records is not None:
        parts.append(f"{work.records:,} records")
    if work.left:
        topics = ", ".join(f"{printable(topic)} {lag:,}" for topic, lag in work.left.items())
        parts.append(f"left: {topics}")
    if work.all_tasks:
        parts.append(f"{work.tasks:,} of {work.all_tasks:,} tasks")
    return " · ".join(parts) or "Spark plans"
