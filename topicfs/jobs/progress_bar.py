"""How far a job is, on a terminal: a bar on standard error, drawn from a thread of its own, that leaves nothing behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from pipeline.spark.progress import JobProgress, Watch
from storage.messages import printable
from topicfs.terminal import console, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERIOD_S = 0.25
"""Between two looks."""
PATIENCE_S = 5.0
"""How long the end of a job waits for a look that is under way."""
STARTING = "Spark starts"


class ProgressBar:
    """One line that tells of one job. Where nobody looks at a terminal it is nothing at all."""

    def __init__(self, job: str, progress: Progress) -> None:
        self._job = job
        self._progress = progress
        self._task: TaskID = progress.add_task(job, total=None, told=STARTING)

    @property
    def is_drawn(self) -> bool:
        """Whether anybody sees it."""
        return not self._progress.disable

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Follow a session while the block runs. What goes wrong with that never reaches the job."""
        if self._progress.disable:
            yield
            return
        over = threading.Event()
        watch = Watch(spark)
        thread = threading.Thread(target=self._follow, args=(watch, over), daemon=True, name="progress bar")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE_S)

    def _follow(self, watch: Watch, over: threading.Event) -> None:
        while not over.wait(PERIOD_S):
            try:
                self.show(watch.look())
            except Exception:  # noqa: BLE001 (a bar that cannot be drawn is no reason to end a job)
                return

    def say(self, line: str) -> None:
        """Tell something above the bar, or where there is none, as any message."""
        if self.is_drawn:
            self._progress.console.print(plain(line))
        else:
            click.echo(printable(line), err=True)

    def show(self, work: JobProgress) -> None:
        """Draw how far it is."""
        self._progress.update(self._task, completed=work.done, total=work.total, told=told(work))


@contextmanager
def progress_bar(job: str) -> Iterator[ProgressBar]:
    """A bar that is gone when the block ends."""
    screen = console(error=True)
    if screen.is_terminal:
        # A descriptor of its own: while Spark starts, the usual one is elsewhere.
        screen.file = os.fdopen(os.dup(screen.file.fileno()), "w")
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", style="name"),
        BarColumn(),
        TextColumn("{task.fields[told]}", markup=False),
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


def told(work: JobProgress) -> str:
    """What the bar says beside itself: names of topics are shown so that a terminal obeys nothing in them."""
    parts = []
    if work.records is not None:
        parts.append(f"{work.records:,} records")
    if work.left:
        topics = ", ".join(f"{printable(topic)} {lag:,}" for topic, lag in work.left.items())
        parts.append(f"left: {topics}")
    if work.all_tasks:
        parts.append(f"{work.tasks:,} of {work.all_tasks:,} tasks")
    return " · ".join(parts) or "Spark plans"
