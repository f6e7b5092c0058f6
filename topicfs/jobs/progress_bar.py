"""The progress bar of a job: drawn on standard error by a thread of its own, and removed at the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from topicfs.pipeline.spark.progress import JobProgress, ProgressReader
from topicfs.storage.messages import printable
from topicfs.terminal import console, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERIOD_S = 0.25
"""Seconds between two updates."""
PATIENCE_S = 5.0
"""Longest wait, at the end of a job, for an update that is under way."""
STARTING = "Spark starts"


class ProgressBar:
    """One line with the progress of one job. Without a terminal nothing is drawn."""

    def __init__(self, job: str, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task(job, total=None, status=STARTING)

    @property
    def is_drawn(self) -> bool:
        """True if the bar is drawn on a terminal."""
        return not self._progress.disable

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Follow a session while the block runs. What goes wrong with that never reaches the job."""
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
            thread.join(PATIENCE_S)

    def _follow(self, reader: ProgressReader, over: threading.Event) -> None:
        while not over.wait(PERIOD_S):
            try:
                self.show(reader.read())
            except Exception:  # noqa: BLE001 (a bar that cannot be drawn is no reason to end a job)
                return

    def say(self, line: str) -> None:
        """Print a line above the bar; without one, on standard error."""
        if self.is_drawn:
            self._progress.console.print(plain(line))
        else:
            click.echo(printable(line), err=True)

    def show(self, work: JobProgress) -> None:
        """Draw the progress."""
        self._progress.update(self._task, completed=work.done, total=work.total, status=status_text(work))


@contextmanager
def progress_bar(job: str) -> Iterator[ProgressBar]:
    """Yield a bar that is gone when the block ends."""
    screen = console(error=True)
    if screen.is_terminal:
        # A descriptor of its own: while Spark starts, the usual one is elsewhere.
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
