"""The files on which equal operations are measured: logs of topicfs and of the empty filesystem, and a plain file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.frame.machine import filesystem_type
from benchmarks.frame.question import Case, Conditions, Goal, Side, Unit, WrongResultError
from benchmarks.frame.rounds import Figure, shared_cases
from benchmarks.in_memory import directory_in_memory, touch_memory
from benchmarks.mount.setup.cpu_time import Timing, all_processors, timed
from benchmarks.mount.setup.mounts import (
    EMPTY,
    Mount,
    empty_filesystem,
    empty_filesystem_in_c,
    keeping_filesystem,
    topicfs,
)


@dataclass(frozen=True, slots=True)
class MeasuredLog:
    """A log, or a plain file in place of a log."""

    side: str
    path: Path
    size: Callable[[], int]
    """Returns the number of bytes in the log, as the compared program reports it."""
    daemon: int | None = None
    """The process that serves the log; None for plain files, which the kernel serves."""
    kept_in: Path | None = None
    """The directory that stores appended bytes; None if nothing is appended or stored."""

    def appended(self, size: int, work: Callable[[], float]) -> Timing:
        """Return the time of appending `size` bytes. Raises WrongResultError unless all bytes arrived."""
        before = self.size()
        if self.kept_in is not None:
            touch_memory(self.kept_in, 2 * size)
        took = timed(work, self.daemon)
        arrived = self.size() - before
        if arrived != size:
            raise WrongResultError(f"{self.path}: {arrived} of {size} bytes arrived")
        return took


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLogs:
    ours: MeasuredLog
    empty: MeasuredLog
    native: MeasuredLog
    others: tuple[MeasuredLog, ...] = ()
    """Other empty filesystems: in C, with pyfuse3's own request loop, or one that reads or writes batches."""
    least: str | None = None
    """The side that does only the work that no log can avoid.

    None if the sides store bytes: the least work is then the work of the empty filesystem, which stores nothing, plus
    the work of plain files.
    """

    def cases(
        self,
        work: Callable[[MeasuredLog], Timing],
        shown: Display,
        *,
        target: float | None = None,
        target_of_least: float | None = None,
        floor: float | None = None,
    ) -> Iterator[Case]:
        """Yield a case for the elapsed time of the work, and a case for its processor time.

        Both cases have the same targets: `target` is relative to the empty filesystem, `target_of_least` to the side
        `least`. Only processor time has a floor, because elapsed time depends too much on the machine. If a target
        is given, a third case shows the elapsed time of programs that are not restricted to one processor.
        """
        measures: dict[str, Callable[[], Timing]] = {
            log.side: partial(work, log) for log in (self.ours, self.empty, *self.others, self.native)
        }
        least = self.least
        if least is None:
            least = f"empty, then {self.native.side}"
            measures[least] = lambda: work(self.empty).plus(work(self.native))
        beside = tuple(Goal(of=other.side) for other in self.others if other.side != least)
        of_empty = Goal(of=EMPTY, target=target)
        goals = (of_empty, Goal(of=least, target=target_of_least), *beside)
        with_floor = (of_empty, Goal(of=least, target=target_of_least, floor=floor), *beside)
        yield from shared_cases(
            measures,
            Figure(shown.name, shown.unit, shown.elapsed, goals),
            Figure(shown.name, shown.processor_unit, shown.cpu, with_floor),
        )
        if target is None and target_of_least is None:
            return
        yield Case(
            name=f"{shown.name}, not pinned",
            unit=shown.unit,
            sides=tuple(
                Side(log.side, partial(_not_pinned, work, log, shown))
                for log in (self.ours, self.empty, *self.others)
            ),
            goals=tuple(Goal(of=log.side) for log in (self.empty, *self.others)),
        )


def _not_pinned(work: Callable[[MeasuredLog], Timing], log: MeasuredLog, shown: Display) -> float:
    with all_processors(log.daemon):
        return shown.elapsed(work(log))


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How to show a timing: its figures and units."""

    name: str
    unit: Unit
    processor_unit: Unit
    figure: Callable[[float], float]
    """Returns the figure for a number of seconds, of elapsed or processor time."""

    def elapsed(self, took: Timing) -> float:
        return self.figure(took.elapsed)

    def cpu(self, took: Timing) -> float:
        return self.figure(took.cpu)


@contextmanager
def logs_for_appends(
    conditions: Conditions, written_bytes: int, *, requests_count: bool = False
) -> Iterator[MeasuredLogs]:
    """Make an empty filesystem, a new topic with one partition, and a plain file beside the topic's segments.

    The files are in memory if memory has space for `written_bytes`, because the empty filesystem does not wait for a
    disk either. A second empty filesystem writes batches. With `requests_count` there are two further empty
    filesystems, one in C and one with pyfuse3's own request loop.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(directory_in_memory(conditions, 3 * written_bytes))
        ours = stack.enter_context(topicfs(directory, directory / "data"))
        (ours.path / "bench").mkdir()
        empty = stack.enter_context(empty_filesystem(directory))
        keeping = stack.enter_context(keeping_filesystem(directory))
        others = []
        if requests_count:
            others.append(stack.enter_context(empty_filesystem_in_c(directory)))
            others.append(stack.enter_context(empty_filesystem(directory, plain=True)))
        native = directory / "native"
        native.touch()
        log = ours.partition() / "log"
        yield MeasuredLogs(
            ours=MeasuredLog(ours.side, log, lambda: log.stat().st_size, ours.pid, kept_in=directory),
            empty=_empty_log(empty),
            others=(replace(_empty_log(keeping), kept_in=directory), *map(_empty_log, others)),
            native=MeasuredLog(
                filesystem_type(directory), native, lambda: native.stat().st_size, kept_in=directory
            ),
        )


def _empty_log(empty: Mount) -> MeasuredLog:
    return MeasuredLog(empty.side, empty.partition() / "log", _counted(empty), empty.pid)


def _counted(mount: Mount) -> Callable[[], int]:
    written = mount.partition() / "written"
    return lambda: int(written.read_text())
