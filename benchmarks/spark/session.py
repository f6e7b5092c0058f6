"""The session of all queries, as `topicfs pipeline` makes it, and the processor time of all its processes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.frame.question import SkippedError
from benchmarks.mount.setup.cpu_time import Timing
from topicfs import pipeline
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import SparkPlace
from topicfs.pipeline.session import SessionOptions, job_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """This process, or a descendant of it."""

    parent: int
    seconds: float
    """Processor time since the start, including that of child processes that have ended and were waited for."""


def timed(query: Callable[[], object]) -> Timing:
    """Run a query; the processor time is that of this process and its descendants: Spark, its workers, a broker."""
    before, started = processes(), time.perf_counter()
    query()
    return Timing(time.perf_counter() - started, seconds_between(before, processes()))


@contextmanager
def session(directory: Path, places: Sequence[SparkPlace]) -> Iterator[SparkSession]:
    """Start a session on every core. Raises SkippedError if Java or a cluster's connector is missing."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise SkippedError("java is missing: install a Java 17 runtime (openjdk-17-jre-headless)")
    # Spark's Python processes import `memory_source` from here.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.local.dir": str(directory / "spark"),
        "spark.driver.memory": "2g",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    options = SessionOptions(master="local[*]", settings=settings)
    with (directory / "spark.log").open("wb") as stderr, ExitStack() as stack:
        try:
            started = stack.enter_context(job_session(options, stderr=stderr, places=places))
        except PipelineError as error:
            raise SkippedError(str(error)) from None
        pipeline.register(started)
        yield started


def processes() -> dict[int, Process]:
    """Return this process and all of its descendants, by process ID."""
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # The process has ended in the meantime.
            found[int(entry.name)] = Process(int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
    return {number: one for number, one in found.items() if _descends(number, found)}


def seconds_between(before: Mapping[int, Process], after: Mapping[int, Process]) -> float:
    """Return the processor time between two listings of processes.

    The time of a process that has ended is counted by its parent. If the parent has ended too, the time is lost.
    """
    came = sum(
        one.seconds - (before[number].seconds if number in before else 0) for number, one in after.items()
    )
    known = sum(one.seconds for number, one in before.items() if number not in after and one.parent in after)
    return came - known


def _descends(number: int, found: Mapping[int, Process]) -> bool:
    while number in found:
        if number == os.getpid():
            return True
        number = found[number].parent
    return False
